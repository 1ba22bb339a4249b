#!/usr/bin/env bash
# The main job, once, small: build, grade the sample class, run chapter 4's experiment on the CPU.
# Usage: demo.sh OUT WORKERS. Each step is a command that a reader can run alone.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
workers=$2
assignment=04_execution_dispatch

say() { printf '\n== %s\n' "$*"; }

say "build: masters in solutions/ → student notebooks in notebooks/"
.venv/bin/python -m grader build

say "grade: the sample class (assets/sample_class/$assignment), every notebook in its own sandbox"
.venv/bin/python -m grader grade "assets/sample_class/$assignment" --assignment "$assignment" \
    --out "$out/class" --workers "$workers" --limit call_s=3

say "experiment: eager against torch.compile on this CPU, small"
.venv/bin/python -m grader experiment "$assignment" --out "$out/experiment" \
    --set "RUN_MODE='real_cpu'" --set "RUN_LABEL='default'"

cat <<END

Done. Look at
  $out/class/results.csv                the table of grades
  $out/class/report.html                the class at a glance
  $out/class/feedback/                  one page per student
  $out/experiment/*.plot1.png           the plot
  $out/experiment/benchmarks/results/   what was measured
  notebooks/                            the notebooks: make lab opens them
END
