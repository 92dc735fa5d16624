"""A topic is emptied by HTTP, and stays."""

from __future__ import annotations

import httpx


def test_all_messages_of_a_topic_are_deleted(web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    some = [{"value": str(n), "partition": n % 2} for n in range(5)]
    web.post(f"/topics/{name}/messages", json=some).raise_for_status()
    assert web.delete(f"/topics/{name}/messages").json() == {"topic": name, "deleted": 5}
    assert web.delete(f"/topics/{name}/messages").json() == {"topic": name, "deleted": 0}
    ranges = web.get(f"/topics/{name}/offsets").json()["partitions"]
    assert [(each["start_offset"], each["end_offset"]) for each in ranges] == [(3, 3), (2, 2)]
    sent = web.post(f"/topics/{name}/messages", json={"value": "next", "partition": 0}).json()
    assert sent["offset"] == 3


def test_messages_that_must_stay_are_not_deleted(web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"settings": {"cleanup.policy": "compact"}})
    assert "compaction alone" in web.delete(f"/topics/{name}/messages").text
    assert "the broker's own" in web.delete("/topics/__consumer_offsets/messages").text
    assert web.delete("/topics/nowhere-to-be-found/messages").status_code == 404
