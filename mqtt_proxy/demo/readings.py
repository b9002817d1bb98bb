"""The readings of three sensor boxes over one day, as the messages of a fleet.

Source: github.com/garystafford/aws-iot-analytics-demo, `sample_data/raw_data_xlarge.json.zip` (MIT, readings.LICENSE.txt):
every reading with every digit, packed as CSV. To make a fleet of it, each hour of each box is played by a device of its own.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from importlib.resources import files

DAY_START_S = 1_594_598_400
"""2020-07-13 00:00 UTC: the first reading is 24 s later."""
FLAGS = ("light", "motion")
ADDRESSES = {"iot-device-01": "0e:9c:00:4c:1c:51", "iot-device-02": "5e:44:3b:f3:79:c8", "iot-device-03": "f3:6b:f4:34:c0:17"}
"""The boxes' `device_id`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One line of the file: `number` counts all readings from 0 in the order of their time."""

    number: int
    box: str
    hour: int
    payload: bytes

    @property
    def device(self) -> str:
        return f"{self.box}-h{self.hour:02d}"

    @property
    def topic(self) -> bytes:
        return f"sensors/{self.box}/h{self.hour:02d}/reading".encode()


def number_of(payload: bytes) -> int:
    """The number of the reading in a payload, without parsing the JSON: it is the first member."""
    return int(payload[5 : payload.index(b",")])


def load(most: int | None = None) -> list[Reading]:
    """All readings, or the first `most`, oldest first."""
    lines = gzip.decompress((files("mqtt_proxy.demo") / "readings.csv.gz").read_bytes()).decode().splitlines()
    names = lines[0].split(",")[2:]
    readings = []
    for number, line in enumerate(lines[1:] if most is None else lines[1 : most + 1]):
        box, time_s, *values = line.split(",")
        data = {name: value == "1" if name in FLAGS else float(value) for name, value in zip(names, values, strict=True)}
        payload = json.dumps({"n": number, "ts": float(time_s), "device": box, "device_id": ADDRESSES[box], "data": data}).encode()
        readings.append(Reading(number, box, int(float(time_s) - DAY_START_S) // 3_600, payload))
    return readings
