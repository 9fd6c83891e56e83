"""Right answers to the stock's prompts, and for JSON a wrong one each: the checks can be passed and failed."""

from typing import Any

CODE: dict[str, str] = {
    "code_01": """
def mask_email(address):
    name, _, domain = address.partition("@")
    return name[:1] + "*" * (len(name) - 1) + "@" + domain
""",
    "code_02": """
from itertools import accumulate

def running_max(values):
    return list(accumulate(values, max))
""",
    "code_03": """
import re

def parse_duration(text):
    hours, minutes, seconds = re.fullmatch(r"(?:(\\d+)h)?(?:(\\d+)m)?(?:(\\d+)s)?", text).groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
""",
    "code_04": """
import re

def is_valid_code(code):
    # A regular expression states the form in one line.
    return re.fullmatch(r"[A-Z]{2}-[0-9]{4}", code) is not None
""",
    "code_05": """
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
    "code_06": """
def roman(number):
    signs = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
             (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    result = ""
    for value, sign in signs:
        while number >= value:
            result += sign
            number -= value
    return result
""",
    "code_07": """
def class_report(grades):
    return {name: round(sum(marks) / len(marks), 1) for name, marks in grades.items() if marks}
""",
    "code_08": """
def moving_average(values, size):
    return [sum(values[i : i + size]) / size for i in range(len(values) - size + 1)]
""",
    "code_09": """
import re
from collections import Counter

def word_counts(text):
    return dict(Counter(re.findall("[a-z]+", text.lower())))
""",
    "code_10": """
def collatz_path(n):
    path = [n]
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        path.append(n)
    return path
""",
    "code_11": """
def flatten(items):
    flat = []
    for item in items:
        if isinstance(item, list):
            flat.extend(flatten(item))
        else:
            flat.append(item)
    return flat
""",
    "code_12": """
def caesar(text, shift):
    def moved(char):
        for first in "aA":
            if first <= char <= chr(ord(first) + 25):
                return chr((ord(char) - ord(first) + shift) % 26 + ord(first))
        return char
    return "".join(map(moved, text))
""",
    "code_13": """
def last_n(items, n):
    return items[max(0, len(items) - n):] if n else []
""",
    "code_14": """
def isbn13_ok(digits):
    return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10 == 0
""",
    "code_15": """
import asyncio

async def fetch_all(urls, limit):
    gate = asyncio.Semaphore(limit)
    async def one(url):
        async with gate:
            return await fetch(url)
    return await asyncio.gather(*(one(url) for url in urls))
""",
    "code_16": """
def group_by_initial(names):
    groups = {}
    for name in sorted(filter(None, names)):
        groups.setdefault(name[0].lower(), []).append(name)
    return groups
""",
    "code_17": """
def make_change(cents):
    change = {}
    for coin in (50, 20, 10, 5, 2, 1):
        count, cents = divmod(cents, coin)
        if count:
            change[coin] = count
    return change
""",
    "code_18": """
def insert_at(sorted_values: list[int], target: int) -> int:
    low, high = 0, len(sorted_values)
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low
""",
    "code_19": """
def parse_reading(line):
    time, *fields = line.split()
    return {"time": time} | {name: float(value) for name, value in (field.split("=") for field in fields)}
""",
    "code_20": """
def transpose(rows):
    return [[row[column] for row in rows] for column in range(len(rows[0]))] if rows else []
""",
    "code_21": """
from itertools import groupby

def rle(text):
    return [[char, len(list(run))] for char, run in groupby(text)]
""",
    "code_22": """
def split_bill(total_cents, people):
    share, rest = divmod(total_cents, people)
    return [share + 1] * rest + [share] * (people - rest)
""",
    "code_23": """
def next_task(tasks):
    task = min((t for t in tasks if not t["done"]), key=lambda t: t["priority"], default=None)
    return task and task["name"]
""",
    "code_24": """
from datetime import date, timedelta

def working_days(start, end):
    first, last = date.fromisoformat(start), date.fromisoformat(end)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    return sum(day.weekday() < 5 for day in days)
""",
    "code_25": """
import functools

def retry(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            for attempt in range(times):
                try:
                    return function(*args, **kwargs)
                except Exception:
                    if attempt == times - 1:
                        raise
        return wrapped
    return decorate
""",
    "code_26": """
def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]
""",
    "code_27": """
from collections import deque

def shortest_path(graph, start, goal):
    paths, seen = deque([[start]]), {start}
    while paths:
        path = paths.popleft()
        if path[-1] == goal:
            return path
        for node in graph.get(path[-1], []):
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return None
""",
    "code_28": """
def to_camel(name):
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
""",
    "code_29": """
import re

def slugify(title):
    return re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
""",
    "code_30": """
import random

def roll(dice, sides, seed):
    generator = random.Random(seed)
    return [generator.randint(1, sides) for _ in range(dice)]
""",
}

_PERSON = {"name": "Ada", "born": 1941, "children": [{"name": "Ben", "born": 1970, "children": []}]}
_POINT: dict[str, Any] = {
    "type": "Feature",
    "geometry": {"type": "Point", "coordinates": [36.82, -1.29]},
    "properties": {"name": "Nairobi"},
}
_TRIP: dict[str, Any] = {
    "destination": "Porto",
    "days": [{"day": 1, "activities": ["a", "b", "c"]}, {"day": 2, "activities": ["d"] * 3}],
}
_RECIPE: dict[str, Any] = {
    "title": "Pancakes",
    "servings": 4,
    "ingredients": [{"item": item, "amount": 2, "unit": "cup"} for item in ("flour", "milk", "egg", "salt")],
    "steps": ["Whisk.", "Fry."],
}
_LINE = {"description": "chair", "quantity": 2, "price": 40.5}
_INVOICE = {"invoice_number": "A-7", "currency": "EUR", "lines": [_LINE, _LINE], "total": 162.0}
_LOGIN = {"user": "kim", "ip_address": "192.0.2.4"}
_EVENT = {"timestamp": "2026-02-03T04:05:06Z", "level": "warning", "event": "login failed", "context": _LOGIN}
_LIGHT = {
    "states": ["red", "green"],
    "initial": "red",
    "transitions": [
        {"from": "red", "to": "green", "after_seconds": 30},
        {"from": "green", "to": "red", "after_seconds": 9},
    ],
}
_POST = {"title": "On Tea", "slug": "on-tea", "published": True, "author": {"name": "Kim"}, "word_count": 420}
_CAPITALS = [{"capital": c, "country": c, "population_millions": 1.5} for c in ("Oslo", "Rome", "Riga")]
_WORKOUT = {day: [{"exercise": "row", "minutes": 20}] for day in ("monday", "wednesday", "friday")}
_THERMOSTAT = {"target_c": 21, "current_c": 19.5, "mode": "heat", "errors": []}

# By id: an instance that meets the schema and one that does not.
JSON: dict[str, tuple[Any, Any]] = {
    "json_01": (
        {"name": "Bean", "city": "Lyon", "seats": 12, "serves_food": False},
        {"name": "Bean", "city": "Lyon", "seats": 0, "serves_food": False},
    ),
    "json_02": (
        {"product": "blue chalk", "quantity": 12, "unit_price": 3.40},
        {"product": "blue chalk", "quantity": "12", "unit_price": 3.40},
    ),
    "json_03": (_CAPITALS, _CAPITALS[:2]),
    "json_04": (
        {"id": 7, "username": "kim", "email": "kim@example.org", "roles": ["editor"]},
        {"id": 7, "username": "kim", "email": "kim@example.org", "roles": ["owner"]},
    ),
    "json_05": ({"date": "2026-03-14", "place": "the old mill in Lund"}, {"date": "14 March 2026", "place": "Lund"}),
    "json_06": (
        {"host": "0.0.0.0", "port": 8443, "tls": {"enabled": True, "cert_file": "/etc/cert.pem"}},
        {"host": "0.0.0.0", "port": 443, "tls": {"enabled": True, "cert_file": "/etc/cert.pem"}},
    ),
    "json_07": ({"sentiment": "mixed", "confidence": 0.8}, {"sentiment": "mixed", "confidence": 80}),
    "json_08": (_WORKOUT, {**_WORKOUT, "friday": []}),
    "json_09": (
        {"piece": "pawn", "from": "e2", "to": "e4", "capture": False},
        {"piece": "pawn", "from": "e2", "to": "e9", "capture": False},
    ),
    "json_10": (_RECIPE, {**_RECIPE, "ingredients": _RECIPE["ingredients"][:3]}),
    "json_11": (_POINT, {**_POINT, "geometry": {"type": "Point", "coordinates": [-1.29, 36.82]}}),
    "json_12": ({"fr": "pont", "de": "Brücke", "es": "puente"}, {"fr": "pont", "de": "Brücke"}),
    "json_13": ({"primes": [7, 11], "count": 2}, {"primes": [7, 9, 11], "count": 3}),
    "json_14": (_INVOICE, {**_INVOICE, "lines": [_LINE]}),
    "json_15": (_PERSON, {**_PERSON, "children": [{"name": "Ben", "born": 1970}]}),
    "json_16": (["Mercury", "Venus", "Earth"], ["Venus", "Mercury", "Earth"]),
    "json_17": (
        {"subject": "Crash on rotation", "priority": "high", "tags": ["crash"]},
        {"subject": "Crash on rotation", "priority": "urgent", "tags": ["crash"]},
    ),
    "json_18": (_EVENT, {**_EVENT, "timestamp": "2026-02-03T04:05:06"}),
    "json_19": ({"fahrenheit": 77, "kelvin": 298.15}, {"fahrenheit": 77, "kelvin": 248.15}),
    "json_20": (["Ash", "Fog", "Slate", "Misty"], ["Ash", "Ash", "Slate", "Misty"]),
    "json_21": (
        {"question": "Which is longest?", "options": ["Nile", "Po", "Ems", "Oder"], "answer_index": 0},
        {"question": "Which is longest?", "options": ["Nile", "Po", "Ems", "Oder"], "answer_index": 4},
    ),
    "json_22": (_LIGHT, {**_LIGHT, "initial": None}),
    "json_23": (
        {"full_name": "Kim Roe", "nights": 3, "breakfast": True, "notes": None},
        {"full_name": "Kim Roe", "nights": 3, "breakfast": "yes", "notes": None},
    ),
    "json_24": ({"a": 1, "e": 1, "u": 1}, {"a": 1, "e": 1, "u": 1, "i": 0}),
    "json_25": (
        {"field": "price", "operator": "lt", "value": 20},
        {"field": "price", "operator": "<", "value": 20},
    ),
    "json_26": ({"r": 214, "g": 40, "b": 30, "hex": "#d6281e"}, {"r": 256, "g": 40, "b": 30, "hex": "#d6281e"}),
    "json_27": (_TRIP, {**_TRIP, "days": _TRIP["days"][:1]}),
    "json_28": (
        {"name": "Lena", "age": 34, "instruments": ["cello"], "languages": ["Dutch", "Polish"]},
        {"name": "Lena", "age": 34, "instruments": ["viola"], "languages": ["Dutch", "Polish"]},
    ),
    "json_29": (_POST, {**_POST, "slug": "On Tea"}),
    "json_30": (_THERMOSTAT, {**_THERMOSTAT, "errors": ["E1"]}),
}

PROSE: dict[str, str] = {
    "prose_02": """Dear Mrs Okafor, I am very sorry that your parcel was left at the wrong house. That should not have
happened, and it is our mistake. We would like to put it right at once: please tell me whether you would rather have a
full refund or a replacement sent by courier tomorrow. With apologies, Jo Hill""",
    "prose_05": """Under the sun, evaporation lifts water from seas and lakes into the air. High up, where it is cold,
condensation turns the vapour into clouds of tiny drops. When the drops grow heavy they fall as rain, and rivers carry
the water back to the sea.""",
    "prose_08": """Ein Kühlschrank macht keine Kälte, er trägt die Wärme nach außen. In seinen Rohren fließt ein
Kältemittel. Innen verdampft es und nimmt dabei die Wärme der Speisen auf. Der Kompressor saugt den Dampf an und
drückt ihn zusammen, so wird er heiß. Auf der Rückseite gibt er die Wärme an die Luft der Küche ab und wird
wieder flüssig. Dann beginnt der Kreislauf von vorn, und mit jeder Runde wird es im Inneren ein wenig kühler.
Deshalb ist das Gitter auf der Rückseite warm.""",
    "prose_11": """Querida abuela: te escribo desde una isla donde el viento no para ni un minuto. El mar está lleno de
espuma y por las noches se oye desde mi cama. La comida es muy rica, sobre todo el pescado con papas. Ayer perdí el
sombrero en la playa y un perro me lo trajo. Vuelvo el domingo por la tarde. Un beso muy grande.""",
    "prose_21": """Cher Marc, chers collègues, nous voici réunis pour fêter un départ à la retraite que personne ici ne
voulait voir arriver. Pendant vingt ans, ton humour a sauvé nos réunions du lundi, et plus d'un projet aussi. Tu nous
as appris que rire ne veut pas dire prendre le travail à la légère. Maintenant, c'est ton jardin qui va profiter de ta
patience : les tomates ont de la chance. Merci pour tout, et ne nous oublie pas quand la récolte sera trop grande.""",
    "prose_30": """In the course of the year the charity planted 4,200 trees in two counties. The work was carried out
with the help of volunteers of every age, who gave their weekends to it. The trustees wish to express their sincere
gratitude to the donors, without whose generosity none of this would have been possible.""",
}
