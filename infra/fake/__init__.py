"""The parts of the fake engine (``python -m infra.fake_engine``)."""
