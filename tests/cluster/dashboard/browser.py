"""A headless Chromium for the tests of the page and its picture."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"

OPTIONS = (
    *("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""Nothing but the page, and nothing asked of any other server."""


def missing() -> str:
    """What is not installed, as a sentence; empty if all is there."""
    if shutil.which(DRIVER) is None or not any(map(shutil.which, BROWSERS)):
        return "no headless browser: install chromium and chromedriver (on Debian: apt-get install chromium chromium-driver)"
    return ""


@contextlib.contextmanager
def headless(width: int, height: int, *, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """A browser with a window of exactly that many pixels, without a screen."""
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for option in OPTIONS:
        options.add_argument(option)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(shutil.which(DRIVER)))
    try:
        resize(browser, width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield browser
    finally:
        browser.quit()


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
