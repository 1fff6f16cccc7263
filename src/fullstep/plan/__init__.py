"""Candidates, verdicts, ranking, rejections and remedies for one worksheet on one machine; the largest that fits."""
