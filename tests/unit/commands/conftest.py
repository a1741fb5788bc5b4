from __future__ import annotations

import argparse

import pytest

from bk_spark import cli


@pytest.fixture
def running(monkeypatch):
    """Runs a handler as a command."""

    def run(handler) -> int:
        parser = argparse.ArgumentParser()
        parser.set_defaults(handler=handler)
        monkeypatch.setattr(cli, "build_parser", lambda _: parser)
        return cli.main([])

    return run
