"""The prompt mixes as data (code, prose, json, warm-up) and what loads and checks them."""
