"""What is recorded beside the requests: scrapes, GPU samples, a Prometheus's answers, live metrics."""
