"""Dashboards for Grafana and the images of the compose file."""
