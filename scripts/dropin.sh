#!/bin/sh
# Copies the package, with its tests, into a host's module.
#
#	scripts/dropin.sh HOST [DIRECTORY]
#
# HOST is the root of the host's module, DIRECTORY where the package goes in it:
# internal/mcp unless given. An earlier copy is replaced; a file that is the
# host's own, or was changed since, is never touched: the script stops and names
# it. The host's go.mod gets golang.org/x/sync, unless it requires a later one.
# Success means that the copy and its tests build in the host. Then:
#
#	cd HOST && go test -race ./internal/mcp/...
set -eu
export GOWORK=off LC_ALL=C

fail() {
	echo "$0: $*" >&2
	exit 1
}

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -f "$1/go.mod" ]; then
	echo "usage: $0 HOST [DIRECTORY], where HOST has a go.mod" >&2
	exit 2
fi
host=$(cd -P "$1" && pwd)
dir=${2:-internal/mcp}
dir=${dir%/}
target=$host/$dir
cd -P "$(dirname "$0")/.."

# The directory must be one below HOST, and of its module: no symbolic link and
# no module in between leads elsewhere.
case /$dir/ in
*//* | */./* | */../* | *[!A-Za-z0-9._~/-]*) fail "DIRECTORY must be a plain path below HOST, such as internal/mcp, and not \"$dir\"" ;;
esac
parent=$target
while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
if [ "$(cd -P "$parent" && go env GOMOD)" != "$host/go.mod" ]; then
	fail "$target is not in the module of $host"
fi

# The file .dropin marks a copy. It has a checksum for each file, so that what is
# the host's own is told from what may be replaced.
copied() { sed -n 's|^[0-9]* [0-9]* ||p' "$target/.dropin" 2>/dev/null || true; }
own=
for file in "$target"/*.go "$target"/supervise/*.go; do
	[ -e "$file" ] || continue
	name=${file#"$target"/}
	sum=$(cd "$target" && cksum "$name")
	grep -qxF "$sum" "$target/.dropin" 2>/dev/null || own="$own $dir/$name"
done
if [ -n "$own" ]; then
	fail "these files are your own, or were changed since they were copied; move them away, or choose another DIRECTORY:$own"
fi

# A later language version changes what the host's own code means, so that is the
# host's to decide. From 1.26 to 1.26.0 nothing changes, and golang.org/x/sync
# asks for the latter. Without a version it is 1.16.
goversion() { sed -n 's|^go  *\([^ ]*\).*$|\1|p' "$1/go.mod"; }
later() { printf '%s\n' "$@" | sort -V | tail -n 1; }
need=$(goversion .)
have=$(goversion "$host")
if [ "$have" = "${need%.*}" ]; then
	go mod edit -go="$need" "$host/go.mod"
	echo "go.mod: go $have is now go $need"
elif [ "$(later "$need" "$have")" != "$have" ]; then
	fail "the package needs go $need or later, and $host/go.mod says \"go ${have:-1.16}\"; run \"go get go@$need\" there, and this again"
fi

# The import prefix is the only thing that is rewritten.
ours=$(go list -m)
theirs=$(cd "$host" && go list -m)/$dir
mkdir -p "$target/supervise"
copied | while read -r file; do rm -f "$target/$file"; done
for file in *.go supervise/*.go; do
	sed "s|\"$ours\([/\"]\)|\"$theirs\1|g" "$file" >"$target/$file"
done
{
	echo "A copy of $ours, made by its $(basename "$0"). Checksums by cksum:"
	(cd "$target" && cksum *.go supervise/*.go)
} >"$target/.dropin"

# The later of two requirements wins, as always in Go, and it is a direct one
# now. With its checksums, the host's next build has nothing to look up.
requirement() { sed -n '/=>/d; s|^.*golang.org/x/sync \(v.*\)$|\1|p' "$1/go.mod" | head -n 1; }
need=$(requirement .)
have=$(requirement "$host")
version=$(later "$need" "${have%% *}")
if [ "$have" != "$version" ]; then
	go mod edit -droprequire=golang.org/x/sync -require="golang.org/x/sync@$version" "$host/go.mod"
fi
if [ "$version" = "$need" ]; then
	touch "$host/go.sum"
	grep '^golang.org/x/sync ' go.sum | sort -u - "$host/go.sum" >"$host/go.sum.new"
	mv "$host/go.sum.new" "$host/go.sum"
fi

# A vendor directory does not have the new requirement yet.
if ! (cd "$host" && go vet -mod=readonly "./$dir/..."); then
	fail "the copy is in $target, but does not build there yet; see above"
fi
echo "$theirs is in $target"
if [ -d "$host/vendor" ]; then
	echo "now run \"go mod vendor\" in $host"
fi
