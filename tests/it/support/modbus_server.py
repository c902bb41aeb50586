"""A Modbus RTU server of pymodbus with known contents: `modbus_server.py PORT`."""

import asyncio
import sys

from pymodbus.server import StartAsyncSerialServer
from pymodbus.simulator import DataType, SimData, SimDevice


def device(unit):
    return SimDevice(
        id=unit,
        simdata=(
            [SimData(0, values=[True, False, True, True, False, False, False, True] * 2, datatype=DataType.BITS)],
            [SimData(0, values=[False, True] * 8, datatype=DataType.BITS)],
            [
                SimData(0, values=-123456 - unit, datatype=DataType.INT32),
                SimData(2, values=230.25, datatype=DataType.FLOAT32),
                SimData(4, values=0.1, datatype=DataType.FLOAT64),
                SimData(8, values=-(2**40), datatype=DataType.INT64),
            ],
            [SimData(100, values=[unit, 2257], datatype=DataType.REGISTERS)],
        ),
    )


asyncio.run(StartAsyncSerialServer([device(3), device(4)], port=sys.argv[1], baudrate=19200))
