"""A probe's record: one JSON file, read as data and never executed; see docs/evidence.md."""

from fullstep.formats.probe_record.reading import probe_from_bytes, probe_from_record
from fullstep.formats.probe_record.store import Stored, read_all, read_one, save
from fullstep.formats.probe_record.writing import record_of, record_text, summary_of

__all__ = ["Stored", "probe_from_bytes", "probe_from_record", "read_all", "read_one", "record_of", "record_text", "save", "summary_of"]
