"""To the type checker, the compiled twin is the Python one: whoever takes one takes the other."""

from millstream.records.arrow_pure import ColumnBuilder as ColumnBuilder
from millstream.records.arrow_pure import RowEncoder as RowEncoder
