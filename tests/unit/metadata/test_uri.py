"""Metadata URIs, drawn from parts that are good or not, beside what their parts say."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from bk_spark.errors import ConfigError
from bk_spark.metadata.uri import parse_uri, speaks_tls, with_root

HOSTS = {
    "h": "h",
    "zk-1.example.com": "zk-1.example.com",
    "10.0.0.7": "10.0.0.7",
    "[::1]": "[::1]",
    "[2001:DB8:0:0:0:0:0:7]": "[2001:db8::7]",
    "bücher.example": "bücher.example",
}
"""As one writes it, and as connections take it."""
BAD_HOSTS = ["", "::1", "[::1", "[fe80::1%eth0]", "a b", "user@h", "unix:h", "[h]", "h\n", "ledgers?"]
PORTS, BAD_PORTS = ["1", "2181", "65535"], ["", "0", "65536", "-1", "21 81", "2181x", "²"]
NAMES = ["ledgers", "a", "with.dots", "...", "ü", "tls=true", "zookeeper2"]
BAD_NAMES = ["", ".", "..", "zookeeper", "a\0", "\n", "\x7f", "\ud800", "\ue000", "\uffff"]
QUERIES = ["", "?tls=true", "?tls=false"]
BAD_QUERIES = ["?", "?tls", "?tls=True", "?tls=1", "?tls=true&a=b", "?tls=true?", "?ssl=true"]


@dataclass(frozen=True)
class Drawn:
    text: str
    hosts: str
    root: str
    tls: bool
    is_good: bool


def drawn(chance: random.Random) -> Drawn:
    """Mostly good ones; a bad one has one bad part."""
    bad = chance.choice(["scheme", "host", "port", "name", "query", *[""] * 5])
    places = [(host, chance.choice(PORTS)) for host in chance.choices(list(HOSTS), k=chance.randint(1, 4))]
    names = chance.choices(NAMES, k=chance.randint(1, 3))
    scheme, query = "zk", chance.choice(QUERIES)
    hosts = ",".join(f"{HOSTS[host]}:{port}" for host, port in places)
    where = chance.randrange(len(places))
    if bad == "host":
        places[where] = chance.choice(BAD_HOSTS), places[where][1]
    elif bad == "port":
        places[where] = places[where][0], chance.choice(BAD_PORTS)
    elif bad == "name":
        names[chance.randrange(len(names))] = chance.choice(BAD_NAMES)
    elif bad == "query":
        query = chance.choice(BAD_QUERIES)
    elif bad == "scheme":
        scheme = chance.choice(["", "ZK", "zk+tls", "http", " zk"])
    root = "".join(f"/{name}" for name in names)
    text = f"{scheme}://{','.join(f'{host}:{port}' for host, port in places)}{root}{query}"
    return Drawn(text, hosts, root, query == "?tls=true", not bad)


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_uri_means_its_parts_or_is_refused_by_its_text(seed: int) -> None:
    chance = random.Random(seed)
    for one in (drawn(chance) for _ in range(200)):
        if one.is_good:
            assert (*parse_uri(one.text), speaks_tls(one.text)) == (one.hosts, one.root, one.tls), one.text
            again = with_root(one.text, "/other/root")
            assert (*parse_uri(again), speaks_tls(again)) == (one.hosts, "/other/root", one.tls), one.text
        else:
            with pytest.raises(ConfigError) as refused:
                parse_uri(one.text)
            assert refused.value.value == one.text, one


@pytest.mark.parametrize("value", [None, 7, b"zk://h:1/ledgers", ["zk://h:1/ledgers"], ""])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="write it as zk://"):
        parse_uri(value)  # type: ignore[arg-type]
