# Builds the wheel, installs it without any framework into a new environment, and uses it from an empty directory.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$(pwd)
"$BUILD" -m build --wheel --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$PYTHON" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --constraint "$root/constraints.txt" "$work"/dist/*.whl
mkdir "$work/empty"
cd "$work/empty"
"$work/venv/bin/expkit" --help >help.txt
grep -q "driver=" help.txt
"$work/venv/bin/python" -m expkit --cfg job >config.txt
grep -q "n_epochs: auto" config.txt
code=0
"$work/venv/bin/expkit" trainer.n_epoch=3 2>refused.txt || code=$?
test "$code" = 2
grep -q "trainer.n_epochs" refused.txt
"$work/venv/bin/expkit" driver=numpy trainer.n_epochs=2 logger=none
code=0
"$work/venv/bin/expkit" driver=torch trainer.n_epochs=2 2>missing.txt || code=$?
test "$code" = 2
grep -q "expkit\[torch\]" missing.txt
echo "wheel: works without a framework, from an empty directory"
