#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Runs every example on the built-in device, one after the other, and says which were right.
set -euo pipefail
build=$1
failed=()

for example in dc_write dci_streams mr_interleaved mr_list raw_wqe memcpy_fence why_failed; do
	printf '\n━━━ examples/%s.c ━━━\n\n' "$example"
	PATH=$PWD/$build/bin:$PATH "$build/examples/$example" || failed+=("$example")
done

echo
if [ ${#failed[@]} -gt 0 ]; then
	echo "wrong: ${failed[*]}"
	exit 1
fi
echo "All seven examples did their work and checked it."
