"""One rank of one leg of a drill. The only part of the drill with torch."""
