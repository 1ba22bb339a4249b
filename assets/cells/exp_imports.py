import contextlib
import copy
import json
import math
import os
import platform
import random
import re
import shutil
import statistics
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch

os.environ["KINETO_LOG_LEVEL"] = "99"  # profiler 自己的日志不进 notebook 的输出
