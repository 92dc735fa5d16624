"""Speed of Millstream, measured against its bars: `python -m benchmarks`."""
