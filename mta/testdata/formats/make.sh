#!/bin/sh
# Makes the data directory of a release, which every later version must open: see TestReleasedFormats. Run it once for
# each release that has a new format, with its binary and its name, and commit what it makes:
#
#	mta/testdata/formats/make.sh ./mta 0.1.0
#
# It takes the ports 12525 to 12527 on 127.0.0.1.
set -eu
mta=$(realpath "$1") name=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=
trap 'for p in $pids; do kill "$p" 2>/dev/null || :; done; wait; rm -rf "$work"' EXIT
cd "$work"

# Where mail arrives: another relay, which keeps it.
cat >sink.conf <<EOF
hostname = "sink.example"
data_dir = "sink"
http { address = "" }
listener "smtp" { address = "127.0.0.1:12526" }
EOF
cat >mta.conf <<EOF
hostname = "relay.example"
data_dir = "data"
http { address = "" }
keys { file = "keys" }
listener "smtp" { address = "127.0.0.1:12525" }
api "web" {
  address  = "127.0.0.1:12527"
  max_hold = "3650d"
}
tenant "acme" { pool = "acme" }
source "shared-1" { address = "127.0.0.1" }
source "acme-1" { address = "127.0.0.2" }
pool "acme" {
  dedicated "acme-1" { plan = "fast" }
}
plan "fast" {
  stage {
    hourly = 1000000
    daily  = 10000000
  }
  stage {
    hourly = 2000000
    daily  = 20000000
  }
}
router { allow_loopback = true }
domain "*" { route = ["smtp://127.0.0.1:12526"] }
domain "later.example" { route = ["smtp://127.0.0.1:1"] } # refuses connections
EOF
start() { # CONFIG
	"$mta" serve --config "$1" &
	pids="$pids $!"
	last=$!
	until "$mta" status --config "$1" >/dev/null 2>&1; do sleep 0.1; done
}
send() { # ADDRESS... : one message
	first=$1
	{
		printf '{"from": "news@acme.example", "subject": "to %s", "text": "hello", "campaign": "spring", "to": [' "$first"
		sep=
		for to; do printf '%s"%s"' "$sep" "$to" && sep=', '; done
		printf ']%s}' "${more-}"
	} | MTA_KEY=$key "$mta" send --json - >/dev/null
}

export MTA_CONFIG=mta.conf
key=$("$mta" key add --tenant acme --name web)
start sink.conf
"$mta" pause everything --config sink.conf >/dev/null
start mta.conf
relay=$last
"$mta" pause domain due.example --reason "for the test" >/dev/null
"$mta" suppress add gone@box.example --reason "asked us to" >/dev/null
"$mta" suppress add gone@box.example --tenant acme --for 20000d >/dev/null

send delivered@box.example deferred@later.example
send held@later.example
until [ "$("$mta" queue list --json | grep -c '"attempts":1')" = 2 ]; do sleep 0.1; done
"$mta" queue hold --recipient held@later.example >/dev/null
send due@due.example
more=', "send_at": "'$(date -u -d '+3649 days' +%Y-%m-%dT00:00:00Z)'"' send scheduled@box.example
"$mta" queue list

kill "$relay"
wait "$relay"
rm -rf data/*.key data/*-secret data/*.sock data/relay.json data/maildrop data/log/current.jsonl data/queue/lock
rm -rf "${here:?}/$name"
mv data "$here/$name"
du -a "$here/$name"
