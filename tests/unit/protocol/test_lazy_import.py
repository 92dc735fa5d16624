"""A broker pays for the messages that its clients send, and for no others."""

from __future__ import annotations

import subprocess
import sys

from millstream.protocol import codec
from millstream.protocol.notation import Int8, Struct, field

IMPORTS = """
import sys
import millstream.protocol.codec
from millstream.protocol.apis import APIS, request_class
from millstream.protocol.headers import read_client_id

package = "millstream.protocol.messages."
read_client_id(b"\\0\\x12\\0\\0\\0\\0\\0\\1\\xff\\xff", flexible=False)
assert not [name for name in sys.modules if name.startswith(package)]
request_class(12)
assert [name for name in sys.modules if name.startswith(package)] == [package + "heartbeat"]
"""


class Sample(Struct, versions=(0, 3)):
    number: Int8 = field()


def test_package_imports_a_message_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def test_message_is_compiled_at_first_use_and_kept() -> None:
    assert not [key for key in codec._readers if key[0] is Sample]
    codec.decode(Sample, 2, b"\x01")
    reader = codec._readers[Sample, 2]
    codec.decode(Sample, 2, b"\x02")
    assert [key for key in codec._readers if key[0] is Sample] == [(Sample, 2)]
    assert codec._readers[Sample, 2] is reader
    assert not [key for key in codec._writers if key[0] is Sample]
