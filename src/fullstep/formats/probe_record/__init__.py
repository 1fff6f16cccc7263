"""Records of probes and of links: one JSON file each, read as data and never executed; see docs/evidence.md."""

from fullstep.formats.probe_record.reading import probe_from_bytes, probe_from_record, record_from_bytes
from fullstep.formats.probe_record.store import Stored, read_all, read_any, save, save_link
from fullstep.formats.probe_record.writing import record_of, record_text, sealed, summary_of

__all__ = [
    "Stored", "probe_from_bytes", "probe_from_record", "read_all", "read_any", "record_from_bytes", "record_of", "record_text",
    "save", "save_link", "sealed", "summary_of",
]  # fmt: skip
