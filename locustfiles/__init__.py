"""The Locust users: the only place that imports Locust and gevent. Name one file with -f, never the folder."""
