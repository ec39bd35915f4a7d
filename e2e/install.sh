#!/bin/sh
# Installs the mail servers and clients that the tests in this folder run the relay against:
# Postfix, Dovecot's Sieve, swaks, msmtp, curl, s-nail, fail2ban's filter, mandoc and man, tmux, NSD, Unbound, rspamd, OpenDKIM, ldns and dkimpy, nats-server, RabbitMQ, PostgreSQL and PgBouncer as Debian's packages, Exim, OpenSMTPD, sendmail and Courier, which can't be installed
# beside Postfix, unpacked into a cache; nginx, Caddy, Prometheus and Chromium; the SDKs of SendGrid and Resend, standardwebhooks and cloudevents from
# PyPI and npm, and Kafka from Maven Central, in the cache; systemd-nspawn, and the files of a Debian that it boots, lintian and rpm; buildah, crun and Helm, and QEMU for arm64. Nothing of it is started or left running.
#
# With arguments it installs these alone, by their names in missing below: install.sh postgresql.
# What is there already is left alone; a second run does nothing. Where it may not install (no
# root, no apt-get, no network) it says what is missing: the tests then say the same and skip.
# It ends well in any case; MTA_E2E_REQUIRE=1 makes the tests, and so CI, demand everything.
#
# The cache is $MTA_E2E_CACHE, else /var/cache/mta-e2e.
set -u
cache=${MTA_E2E_CACHE:-/var/cache/mta-e2e}
export DEBIAN_FRONTEND=noninteractive

# The SDKs that the tests of the HTTP API drive, as their registries have them.
python_sdks='sendgrid==6.12.5 resend==2.52.0 django-anymail==15.2 standardwebhooks==1.1.0 cloudevents==1.12.0'
node_sdks='@sendgrid/mail@8.1.6 resend@6.38.0'

# The version of Kafka, from Maven Central.
kafka=4.1.0

have() { [ -n "$(PATH=$PATH:/usr/sbin:/sbin command -v "$1")" ]; }

# missing names what is not there, one on a line.
missing() {
	have python3 || echo python3
	verifier || echo python3-dkim python3-nacl
	have swaks || echo swaks
	perl -MNet::SSLeay -e 1 2>/dev/null || echo libnet-ssleay-perl
	have openssl || echo openssl
	have curl || echo curl
	have s-nail || echo s-nail
	have php || echo php-cli
	[ -f /usr/share/php/libphp-phpmailer/autoload.php ] || echo libphp-phpmailer
	have fail2ban-regex || echo fail2ban
	[ -x "$cache/pebble/pebble" ] || echo pebble
	have msmtp || echo msmtp
	have mandoc || echo mandoc
	have man || echo man-db
	have nsd || echo nsd
	have tmux || echo tmux
	have unbound || echo unbound
	have rspamd || echo rspamd
	have opendkim || echo opendkim
	have ldns-signzone || echo ldnsutils
	have unshare || echo util-linux
	have systemd-nspawn || echo systemd-container
	have lintian || echo lintian
	have rpm || echo rpm
	have strip || echo binutils
	have buildah || echo buildah
	have crun || echo crun
	have jq || echo jq
	have qemu-aarch64-static || echo qemu-user-static
	[ -x "$cache/helm/helm" ] || echo helm
	ls "$cache"/tree/var/cache/apt/archives/publicsuffix_*.deb >/dev/null 2>&1 || echo tree
	have nginx || echo nginx
	have prometheus && have promtool || echo prometheus
	have caddy || echo caddy
	have chromium || echo chromium
	has_sdks python "$python_sdks" || echo python-sdks
	has_sdks node "$node_sdks" || echo node-sdks
	have java || echo default-jre-headless
	[ -f "$cache/kafka/kafka_2.13-$kafka.jar" ] || echo kafka
	have nats-server || echo nats-server
	[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || echo rabbitmq-server
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql
	have pgbouncer || echo pgbouncer
	have smtp-sink && [ -x /usr/lib/postfix/sbin/master ] || echo postfix
	[ -x "$cache/exim/usr/sbin/exim4" ] && user Debian-exim || echo exim4
	[ -x "$cache/sendmail/usr/libexec/sendmail/sendmail" ] && have m4 || echo sendmail
	[ -x "$cache/courier/usr/sbin/couriertcpd" ] || echo courier
	[ -x /usr/lib/dovecot/dovecot-lda ] && ls /usr/lib/dovecot/modules/*sieve_plugin.so >/dev/null 2>&1 || echo dovecot-sieve
	[ -x "$cache/opensmtpd/usr/sbin/smtpd" ] && user opensmtpd && user opensmtpq || echo opensmtpd
}

# verifier says whether dkimpy is there, which verifies what the relay has signed.
verifier() { /usr/bin/python3 -c 'import dkim, nacl, dns.resolver' 2>/dev/null; }

# has_sdks says whether the cache has these versions: has_sdks LANGUAGE VERSIONS.
has_sdks() { [ "$(cat "$cache/sdk/$1/versions" 2>/dev/null)" = "$2" ]; }

user() { getent passwd "$1" >/dev/null; }

loudly() {
	echo '****************************************************************************' >&2
	for line in "$@"; do echo "  $line" >&2; done
	echo '****************************************************************************' >&2
}

quiet() { # runs a command, and shows what it said only when it failed
	if ! said=$("$@" 2>&1); then
		echo "$said" | tail -n 20 >&2
		return 1
	fi
}

# deny keeps packages from starting their services, unless the machine has a rule already.
deny() {
	[ -e /usr/sbin/policy-rc.d ] && return
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

# removes says whether installing a package would remove another one: then it is left alone.
removes() { apt-get -s install --no-install-recommends "$@" 2>/dev/null | grep -q '^Remv'; }

install() {
	if removes "$@"; then
		loudly "not installing $*: apt-get would remove other packages for it"
		return 1
	fi
	quiet apt-get install -y --no-upgrade --no-install-recommends "$@"
}

# unpack gets packages without installing them: unpack FOLDER PACKAGE...
unpack() {
	to=$cache/$1
	shift
	rm -rf "$to.new"
	mkdir -p "$to.new/deb"
	chmod 755 "$cache" "$to.new"
	(cd "$to.new/deb" && quiet apt-get -o APT::Sandbox::User=root download "$@") || return 1
	for deb in "$to.new"/deb/*.deb; do
		dpkg-deb -x "$deb" "$to.new" || return 1
		# The libraries that it needs are installed: they are in nobody's way.
		libraries=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | grep '^lib')
		[ -z "$libraries" ] || install $libraries || return 1
	done
	rm -rf "$to" "$to.new/deb"
	mv "$to.new" "$to"
}

# sdks gets SDKs from their registry into a folder of the cache: sdks LANGUAGE VERSIONS COMMAND...
sdks() {
	to=$cache/sdk/$1
	versions=$2
	shift 2
	rm -rf "$to"
	mkdir -p "$to"
	quiet "$@" $versions && echo "$versions" >"$to/versions"
}

# jars gets Kafka's with all that it needs into a folder of the cache.
jars() {
	rm -rf "$cache/kafka.new"
	mkdir -p "$cache/kafka.new"
	cat >"$cache/kafka.new/pom.xml" <<-END
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion><groupId>e2e</groupId><artifactId>e2e</artifactId><version>1</version>
		  <dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version></dependency></dependencies>
		</project>
	END
	quiet mvn -q -B -f "$cache/kafka.new/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/kafka.new" || return 1
	rm -rf "$cache/kafka"
	mv "$cache/kafka.new" "$cache/kafka"
}

# debian makes the files of a bare Debian 12 that systemd can boot, with what Postfix takes beside them to be
# installed without a network.
debian() {
	have debootstrap || install debootstrap || return 1
	rm -rf "$cache/tree.new"
	mkdir -p "$cache/tree.new"
	quiet debootstrap --variant=minbase --include=systemd-sysv,dbus,ca-certificates,iproute2,procps bookworm "$cache/tree.new" || return 1
	rm -f "$cache"/tree.new/var/cache/apt/archives/*.deb
	for command in 'apt-get update' 'apt-get install -y --download-only --no-install-recommends postfix' 'apt-get install -y --download-only curl'; do
		quiet chroot "$cache/tree.new" $command || return 1
	done
	rm -rf "$cache/tree"
	mv "$cache/tree.new" "$cache/tree"
}

account() {
	user "$1" || quiet adduser --system --group --quiet --allow-bad-names --no-create-home --home /nonexistent "$1"
}

# wanted names those of its arguments that are missing, without any all that are.
wanted() {
	if [ $# = 0 ]; then missing; else missing | grep -xF "$(printf '%s\n' "$@")"; fi
}

todo=$(wanted "$@")
[ -z "$todo" ] && exit 0
if [ "$(id -u)" != 0 ] || ! have apt-get; then
	loudly 'THE TESTS WITH REAL MAIL SERVERS WILL BE SKIPPED IN PART.' \
		'Missing: '"$(echo $todo)" \
		'Run e2e/install.sh as root on Debian or Ubuntu to have them.'
	exit 0
fi

echo 'installing for the tests with real mail servers'
echo '  the lists of packages'
quiet apt-get update || echo 'apt-get update failed: going on with the lists that are there' >&2
have adduser || install adduser
deny
count=$(echo "$todo" | wc -l) n=0
for what in $todo; do
	n=$((n + 1))
	echo "  $n of $count: $what"
	case $what in
	postfix)
		echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections
		install postfix
		;;
	exim4)
		unpack exim exim4-base exim4-daemon-light
		account Debian-exim
		;;
	pebble) # an ACME server for tests, which Debian has not
		have go && GOBIN=$cache/pebble quiet go install github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
		;;
	helm) # which Debian has not: the version that the chart's check names
		have go && GOBIN=$cache/helm quiet go install "$(grep -o 'helm\.sh/helm/[^}]*' "$(dirname "$0")/../contrib/helm/check")"
		;;
	python-sdks)
		python3 -m pip --version >/dev/null 2>&1 || install python3-pip
		sdks python "$python_sdks" python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$cache/sdk/python"
		;;
	node-sdks)
		have npm || install nodejs npm
		sdks node "$node_sdks" npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$cache/sdk/node"
		;;
	tree) debian ;;
	kafka)
		have mvn || install maven
		jars
		;;
	sendmail)
		have m4 || install m4
		unpack sendmail sendmail-bin sendmail-base sendmail-cf
		;;
	courier)
		unpack courier courier-mta courier-base courier-authlib courier-authdaemon
		;;
	opensmtpd)
		unpack opensmtpd opensmtpd
		account opensmtpd
		account opensmtpq
		;;
	*) install "$what" ;;
	esac
done

todo=$(wanted "$@")
[ -z "$todo" ] || loudly 'THE TESTS WITH REAL MAIL SERVERS WILL BE SKIPPED IN PART.' \
	'Could not be installed: '"$(echo $todo)"
exit 0
