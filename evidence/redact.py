"""What may never reach a file: API keys, authorisation headers, tokens, passwords in URLs.

Three nets, since each has holes of its own:

1. names: the value of ``api_key``, ``--token``, ``Authorization``, ``HF_TOKEN`` is replaced whatever it looks like;
2. shapes: ``sk-...``, ``hf_...``, ``Bearer ...``, ``user:password@`` and secret query fields are replaced anywhere;
3. values: ``KnownSecrets`` holds the secrets this process was given and replaces them in everything that is written,
   so that a server which echoes a key in an error message puts it nowhere.

Counts and special tokens (``max_tokens``, ``bos_token``) are no secrets and stay.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evidence.records import Json

REDACTED = "[redacted]"
MIN_SECRET_CHARACTERS = 6  # a shorter "secret" is a word such as EMPTY, and replacing it would hurt the evidence
MIN_VARIABLE_CHARACTERS = 16  # of a variable that merely has a secret's name: a shorter value may be a word or a path

_STRONG = re.compile(
    r"apikey|passw|passphrase|pwd$|secret|authori[sz]ation|cookie|credential|privatekey|accesskey|bearer|userpass|basicauth"
)
_SPECIAL_TOKEN = re.compile(
    r"(bos|eos|pad|unk|sep|cls|mask|eot|eom|nl|per|first|last|next|new|image|audio|video|stop|start|end|think|tool|begin|"
    r"special|max|min|prefix|suffix|middle|decoder|draft|target)token$"
)
_HEADER = re.compile(r"auth|key|token|secret|cookie|session|credential|signature|passw")
_BEARER = re.compile(r"(?i)^bearer\s+")
_BRACKETED = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)([=:]\s*)(.+)", re.DOTALL)
# Repeats are bounded where a match may begin inside another one: otherwise a long text takes time by its square.
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b([Bb]earer\s+)[A-Za-z0-9._~+/=-]{6,}"), rf"\1{REDACTED}"),
    (re.compile(r"\b([Bb]asic\s+)(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/=]{8,}"), rf"\1{REDACTED}"),
    (re.compile(r"\bsk-[A-Za-z0-9_.-]{6,}"), REDACTED),
    (re.compile(r"\b(hf|ghp|gho|ghs|glpat|xox[abpr]|gsk|nvapi|github_pat)[_-][A-Za-z0-9_-]{8,}"), REDACTED),
    (re.compile(r"\bAKIA[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_-]{20,}|\beyJ[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9._-]+"), REDACTED),
    (re.compile(r"(://)[^/?#\s@\"']+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)(proxy=[\"']?)[^/?#\s@\"']{1,256}@"), rf"\1{REDACTED}@"),  # without a scheme
    (
        re.compile(r"(?i)([?&][\w.-]*(?:key|token|secret|passw\w{0,64}|signature|sig|auth|credential)=)[^&#\s\"']+"),
        rf"\1{REDACTED}",
    ),
)

# Variables that explain a measurement. Every other one is left out, name and value: a list of names tells about the
# machine's owner and nothing about the run.
_USEFUL = re.compile(
    r"CUDA_\w+|NVIDIA_\w+|NCCL_\w+|OMP_\w+|MKL_\w+|OPENBLAS_\w+|GOMP_\w+|KMP_\w+|MALLOC_\w+|VLLM_\w+|SGLANG_\w+|SGL_\w+|"
    r"LLAMA_\w+|GGML_\w+|TORCH\w*|TRITON_\w+|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|LOCUST_\w+|PYTHONHASHSEED|PYTHONOPTIMIZE|"
    r"PYTHONUNBUFFERED|PYTHONDEVMODE|GEVENT_\w+|OPENAI_BASE_URL|LANG|LC_\w+|TZ|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|CI"
)
_WHETHER_SET = ("OPENAI_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def secret_name(name: str) -> bool:
    """True when a field, flag or variable of this name holds a secret: ``api_key``, ``--hf-token``, ``adminApiKey``."""
    if name in ("PWD", "OLDPWD"):  # the shell's folders
        return False
    plain = _plain(name)
    if _STRONG.search(plain):
        return True
    return plain.endswith("token") and _SPECIAL_TOKEN.search(plain) is None


def redact_text(text: str) -> str:
    """The text with everything replaced that has a secret's shape, URL passwords and query keys among them."""
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def redact_json(value: Json) -> Json:
    """The value with secrets replaced at any depth: by the name of a field, by shape, and in lists of arguments."""
    if isinstance(value, str):
        return _redact_word(value)
    if isinstance(value, Mapping):
        return {name: _redact_field(name, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        inner = (
            list(redact_argv(value))
            if all(isinstance(one, str) for one in value)
            else [redact_json(one) for one in value]
        )
        return tuple(inner) if isinstance(value, tuple) else inner
    return value


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without secrets: ``--api-key K``, ``--token=K``, ``-H "Authorization: K"``, ``HF_TOKEN=K``.

    A secret flag may take several values: everything up to the next flag is replaced.
    """
    redacted: list[str] = []
    under: str | None = None  # the flag whose values come next
    first = False  # its first value, which may begin with a hyphen
    for word in argv:
        if under is not None and (first or not word.startswith("-")):
            redacted.append(REDACTED if secret_name(under) else _redact_header_word(word))
            first = False
            continue
        is_flag = word.startswith("-") and "=" not in word
        takes = is_flag and (secret_name(word) or _holds_headers(word))
        under, first = (word, True) if takes else (None, False)
        redacted.append(_redact_word(word))
    return tuple(redacted)


def redact_shell(command: str) -> str:
    """A shell command without secrets, quoted anew; one that cannot be split is redacted by shape alone."""
    try:
        words = shlex.split(command)
    except ValueError:
        return redact_text(command)
    redacted = redact_argv(words)
    return command if list(redacted) == words else shlex.join(redacted)


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """HTTP headers with the values of authorisation, key, cookie and token headers replaced; the names stay."""
    return {name: REDACTED if _HEADER.search(name.lower()) else redact_text(value) for name, value in headers.items()}


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that explain a measurement, with their values; of the usual keys only that they are set."""
    kept = {name: str(_redact_field(name, value)) for name, value in environment.items() if _USEFUL.fullmatch(name)}
    kept |= {name: REDACTED for name in _WHETHER_SET if environment.get(name)}
    return dict(sorted(kept.items()))


def redact_body(body: bytes) -> tuple[bytes, bool]:
    """A server's answer and whether it was changed: JSON with secrets is written anew, anything else stays as it is."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "surrogateescape")
        clean_text = redact_text(text)
        return (body, False) if clean_text == text else (clean_text.encode("utf-8", "surrogateescape"), True)
    clean = redact_json(value)
    anew = json.dumps(clean).encode()
    return (body, False) if anew == json.dumps(value).encode() else (anew, True)


class GivenSecret(str):
    """A secret that knows which variable or header it came from, so that a message can name that and not the value."""

    source: str

    def __new__(cls, value: str, source: str) -> "GivenSecret":
        secret = super().__new__(cls, value)
        secret.source = source
        return secret


class KnownSecrets:
    """The secrets this process was given, to be replaced in all it writes; those under 6 characters are ignored.

    A secret is taken whole, never word by word; of ``Bearer X`` the ``X`` is one as well.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._sources: dict[str, str | None] = {}
        for secret in secrets:
            for word in (secret.strip(), _BEARER.sub("", secret.strip())):
                if len(word) >= MIN_SECRET_CHARACTERS:
                    self._sources.setdefault(word, getattr(secret, "source", None))
        self._words = sorted(self._sources, key=len, reverse=True)
        self._in_json = [json.dumps(word, ensure_ascii=False)[1:-1] for word in self._words]
        self._raw = [
            form for word in self._words for form in dict.fromkeys((word.encode(), json.dumps(word)[1:-1].encode()))
        ]

    @property
    def longest_bytes(self) -> int:
        """Length of the longest secret in bytes, 0 without secrets."""
        return max(map(len, self._raw), default=0)

    def in_line(self, line: str) -> bool:
        """True when a secret stands in this line of JSON (written without ASCII escapes)."""
        return any(word in line for word in self._in_json)

    def found_in(self, data: bytes) -> str | None:
        """Which secret stands in the bytes, by its variable or header and never by its value; None when none does."""
        for word in self._words:
            if any(form in data for form in (word.encode(), json.dumps(word)[1:-1].encode())):
                return self._sources[word] or "a secret that was given without a name"
        return None

    def clean(self, value: Any) -> Any:
        """The value with secrets replaced in every string at any depth, names of fields included."""
        if isinstance(value, str):
            for word in self._words:
                value = value.replace(word, REDACTED)
            return value
        if isinstance(value, Mapping):
            return {self.clean(name): self.clean(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.clean(inner) for inner in value)
        return value

    def mask(self, data: bytes) -> bytes:
        """The bytes with every secret overwritten by asterisks; the length stays, so that offsets do."""
        for form in self._raw:
            if form in data:
                data = data.replace(form, b"*" * len(form))
        return data


def collect_secrets(
    environment: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> tuple[GivenSecret, ...]:
    """The secrets a process was given: values of secret variables and of secret headers, for ``KnownSecrets``.

    A variable that merely has a secret's name counts from 16 characters on and without white space: what is shorter, or
    has words in it, may be no secret at all, and would be replaced wherever a model happens to say it.
    """
    found = [
        GivenSecret(value, f"the variable {name}")
        for name, value in environment.items()
        if name == "OPENAI_API_KEY"
        or (secret_name(name) and len(value) >= MIN_VARIABLE_CHARACTERS and not re.search(r"\s", value))
    ]
    found += [
        GivenSecret(value, f"the header {name}")
        for name, value in (headers or {}).items()
        if _HEADER.search(name.lower())
    ]
    return tuple(dict.fromkeys(value for value in found if value))


def _redact_field(name: str, value: Json) -> Json:
    if _holds_headers(name):
        return _redact_header_field(value)
    if isinstance(value, str) and _plain(name).endswith("proxy") and "://" not in value:
        user, at, host = value.rpartition("@")
        return f"{REDACTED}@{host}" if at and user else redact_text(value)
    if not secret_name(name):
        return redact_json(value)
    if _plain(name).endswith("token") and (isinstance(value, int | float) or _bracketed(value)):
        return value  # a count, or a special token of some model such as "<|fim|>"
    return _blank(value)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _holds_headers(name: str) -> bool:
    return name == "-H" or _plain(name).endswith(("header", "headers"))


def _bracketed(value: Json) -> bool:
    return isinstance(value, str) and _BRACKETED.fullmatch(value) is not None


def _redact_header_field(value: Json) -> Json:
    if isinstance(value, Mapping):
        return redact_headers({name: str(inner) for name, inner in value.items()})
    if isinstance(value, list | tuple):
        return [_redact_header_field(inner) for inner in value]
    return _redact_header_word(value) if isinstance(value, str) else value


def _blank(value: Json) -> Json:
    """Every leaf replaced; absent stays absent and a switch stays a switch, since neither is a secret."""
    if isinstance(value, Mapping):
        return {name: _blank(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_blank(inner) for inner in value]
    return value if value is None or isinstance(value, bool) or value == "" else REDACTED


def _redact_word(word: str) -> str:
    """One argument or string: ``NAME=VALUE`` by its name, everything by shape."""
    if word.startswith(("{", "[")):
        body, changed = redact_body(word.encode("utf-8", "surrogatepass"))
        return body.decode("utf-8", "surrogatepass") if changed else word
    found = _ASSIGNMENT.fullmatch(word)
    if found is not None and secret_name(found[1]):
        return f"{found[1]}{found[2]}{REDACTED}"
    if found is not None and _holds_headers(found[1]):
        return f"{found[1]}{found[2]}{_redact_header_word(found[3])}"
    return redact_text(word)


def _redact_header_word(word: str) -> str:
    found = _ASSIGNMENT.fullmatch(word)
    if found is not None and _HEADER.search(found[1].lower()):
        return f"{found[1]}{found[2]}{REDACTED}"
    return redact_text(word)
