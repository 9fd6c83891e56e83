"""Prompts of about 1,000 tokens, each a ledger of its own and a question about it; made by arithmetic alone.

    python -m prompts.ledgers > scenarios/h200-ledgers.jsonl

makes the prompt file beside its scenario again, byte for byte.
"""

import json
import sys

N_PROMPTS, N_LINES = 24, 62
GOODS = ("barley", "copper", "linen", "honey", "timber", "salt", "wool", "paper", "glass", "oil", "tin", "rope", "wax")
TOWNS = ("Aldby", "Brannoch", "Corvane", "Dunmere", "Eastry", "Fallow", "Grey", "Harrow", "Inver", "Jarrow", "Kelso")


def ledger(number: int) -> str:
    """The text of one prompt; no two numbers make the same one."""
    lines = []
    for i in range(N_LINES):
        draw = (number * 7919 + i * 104729 + (i * i + number) * 31) % 99991
        goods, town = GOODS[draw % len(GOODS)], TOWNS[(draw // 7) % len(TOWNS)]
        lines.append(f"{i + 1}. {draw % 89 + 11} crates of {goods} to {town}")
    asked = GOODS[number % len(GOODS)]
    return (
        f"Ledger {number} of the harbour office:\n" + "\n".join(lines) + f"\n\nTell the story of the {asked} in this "
        "ledger: which towns it went to, in which order, and what the harbour master may have thought about it."
    )


def prompt_file() -> str:
    """All of them, as a prompt file: one JSON object a line."""
    prompts = [{"id": f"ledger_{i:02d}", "domain": "ledger", "text": ledger(i)} for i in range(1, N_PROMPTS + 1)]
    return "".join(json.dumps(prompt) + "\n" for prompt in prompts)


if __name__ == "__main__":
    sys.stdout.write(prompt_file())
