"""Bugs of the boot epochs that show a restored disk.

Each takes one guard out of the shipped code for as long as its context lasts.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from bk_spark.bookie.identity.boot import Boot
from bk_spark.bookie.identity.boot_file import BootRecord
from bk_spark.bookie.process import boot_epoch_keeper
from bk_spark.bookie.process.boot_epoch_keeper import BootEpochKeeper
from tests.simulation.mutants.mutant import RestoredDisk, Script, mutant


def epochs_do_not_move() -> Any:
    """Only boots show what went back."""
    return patch.object(boot_epoch_keeper, "move_boot_epoch", lambda boot, metadata: None)


def a_lapsed_bookie_goes_on() -> Any:
    return patch.object(BootEpochKeeper, "lapse", lambda self: "")


def an_epoch_is_confirmed_before_it_is_stored() -> Any:
    original = Boot.begin_epoch

    def begin(self: Boot) -> Any:
        wanted = original(self)
        self.confirm_epoch()
        return wanted

    return patch.object(Boot, "begin_epoch", begin)


def every_disk_fits() -> Any:
    return patch.object(BootRecord, "fits", lambda self, stored: True)


WENT_BACK = Script("a_disk_that_went_back_denies_nothing")
LAPSED = Script("a_lapsed_bookie_acknowledges_nothing")
CRASHED = Script("a_crash_in_a_move_of_the_epoch_is_no_loss")

RESTORED_DISK_MUTANTS = (
    mutant("a restored disk is noticed (storage rule 9)", epochs_do_not_move, "I10 I11", WENT_BACK, RestoredDisk()),
    mutant("what does not fit is lost (storage rule 9)", every_disk_fits, "I10 I11", WENT_BACK, RestoredDisk()),
    mutant("acks do not outlive the epoch (storage rule 9)", a_lapsed_bookie_goes_on, "I10 I11", LAPSED, RestoredDisk()),
    mutant("a crash is no loss (storage rule 9)", an_epoch_is_confirmed_before_it_is_stored, "I14", CRASHED, RestoredDisk()),
)
