"""One rank of a probe. The only part of it with torch."""
