"""The ledger: every attempt, its owner and every fault, kept for good."""

from harborlight.ledger.book import Ledger
from harborlight.ledger.store import LedgerError, Store

__all__ = ["Ledger", "LedgerError", "Store"]
