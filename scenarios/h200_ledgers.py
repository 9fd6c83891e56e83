"""Writes ``h200-ledgers.jsonl``: prompts of about 1,000 tokens, each a ledger of its own and a question about it.

Made by arithmetic alone, so that the file can be made again byte for byte: ``python scenarios/h200_ledgers.py``.
"""

import json
from pathlib import Path

N_PROMPTS, N_LINES = 24, 62
GOODS = ("barley", "copper", "linen", "honey", "timber", "salt", "wool", "paper", "glass", "oil", "tin", "rope", "wax")
TOWNS = ("Aldby", "Brannoch", "Corvane", "Dunmere", "Eastry", "Fallow", "Grey", "Harrow", "Inver", "Jarrow", "Kelso")


def ledger(number: int) -> str:
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


def main() -> None:
    prompts = [{"id": f"ledger_{i:02d}", "domain": "ledger", "text": ledger(i)} for i in range(1, N_PROMPTS + 1)]
    path = Path(__file__).with_name("h200-ledgers.jsonl")
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts), encoding="utf-8")


if __name__ == "__main__":
    main()
