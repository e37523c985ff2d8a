#!/bin/sh
# Copies the package, with its tests, into a host's module.
#
#	scripts/dropin.sh HOST [DIRECTORY]
#
# HOST is the root of the host's module, DIRECTORY where the package goes in it:
# internal/mcp unless given. A copy that is there already is replaced. The host's
# go.mod gets golang.org/x/sync, unless it requires a later one. Then:
#
#	cd HOST && go vet ./internal/mcp/... && go test -race ./internal/mcp/...
set -eu

if [ $# -lt 1 ] || [ ! -f "$1/go.mod" ]; then
	echo "usage: $0 HOST [DIRECTORY], where HOST has a go.mod" >&2
	exit 2
fi
host=$(cd "$1" && pwd)
target=$host/${2:-internal/mcp}
export GOWORK=off

cd "$(dirname "$0")/.."
ours=$(go list -m)
theirs=$(cd "$host" && go list -m)/${2:-internal/mcp}

# The import prefix is the only thing that is rewritten.
mkdir -p "$target"
rm -rf "$target"/*.go "$target/supervise" "$target/testdata"
mkdir "$target/supervise"
for file in *.go supervise/*.go; do
	sed "s|\"$ours\([/\"]\)|\"$theirs\1|g" "$file" >"$target/$file"
done
if [ -d testdata ]; then
	cp -R testdata "$target"
fi

# The later of two requirements wins, as always in Go. With its checksums, the
# host's next build has nothing to look up.
required() { sed -n 's|^.*golang.org/x/sync \(v[^ ]*\).*$|\1|p' "$1/go.mod" | head -n 1; }
need=$(required .)
have=$(required "$host")
if [ "$(printf '%s\n' "$need" "$have" | sort -V | tail -n 1)" != "$have" ]; then
	(cd "$host" && go mod edit -require="golang.org/x/sync@$need")
	touch "$host/go.sum"
	grep '^golang.org/x/sync ' go.sum | sort -u - "$host/go.sum" >"$host/go.sum.new"
	mv "$host/go.sum.new" "$host/go.sum"
fi
echo "$theirs is in $target"
