"""Scrapes as Prometheus makes them, and what is in them."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Scraped(NamedTuple):
    samples: list[Sample]

    def value(self, name: str, **labels: str) -> float:
        """The sum over everything that fits: 0 when nothing does."""
        return sum(one.value for one in self.all(name, **labels))

    def all(self, name: str, **labels: str) -> list[Sample]:
        return [one for one in self.samples if one.name == name and labels.items() <= one.labels.items()]

    def names(self) -> set[str]:
        return {one.name for one in self.samples}


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def scrape(port: int) -> Scraped:
    status, _, text = get(port, "/metrics")
    assert status == 200, text
    return Scraped([sample for family in text_string_to_metric_families(text) for sample in family.samples])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
