package e2e

import (
	"fmt"
	"testing"
)

// bouncingCourier runs a Courier that was unpacked, not installed. Its paths and the name of its account are compiled
// in, so it has folders, accounts and libraries in a mount namespace. Its daemons leave the process group: a PID
// namespace ends them with the shell that starts them.
func bouncingCourier(t *testing.T, resolvConf, addr, port string) {
	needRoot(t)
	root := cacheDir() + "/courier"
	unshare := need(t, "unshare", root+"/usr/sbin/couriertcpd")[0]
	dir := scratch(t)
	runClient(t, "", "cp", "-a", root+"/etc/courier", dir+"/etc")
	runClient(t, "", "cp", "-a", root+"/var/lib/courier", dir+"/var")
	for file, text := range map[string]string{
		"me":                 "mx.courier.example",
		"defaultdomain":      "courier.example",
		"locals":             "courier.example",
		"esmtpacceptmailfor": "courier.example",
		"dsnfrom":            "postmaster@courier.example",
		"ipout":              addr,
		"authdaemonrc":       `authmodulelist="authpam"` + "\n" + `daemons=1`,
		"aliases/system":     "",
		"smtpaccess/default": "",
		"esmtpauthclient":    "",
		// A full mailbox is a temporary failure until the message has expired.
		"queuetime":     "2",
		"retryalpha":    "1",
		"retrybeta":     "1",
		"retrygamma":    "1",
		"retrymaxdelta": "1",
	} {
		writeFile(t, dir+"/etc/"+file, text+"\n")
	}
	accounts := courierAccounts(t, dir)
	writeFile(t, dir+"/passwd", "root:x:0:0::/root:/bin/sh\n"+accounts)
	writeFile(t, dir+"/ld.so.conf", root+"/usr/lib\ninclude /etc/ld.so.conf\n")
	writeFile(t, dir+"/run", fmt.Sprintf(`set -e
mkdir -p /etc/courier /usr/lib/courier /usr/lib/courier-authlib /var/lib/courier
mount --make-rprivate /
mount --bind %[1]s/usr/lib/courier /usr/lib/courier
mount --bind %[1]s/usr/lib/courier-authlib /usr/lib/courier-authlib
mount --bind %[2]s/etc /etc/courier
mount --bind %[2]s/var /var/lib/courier
mount --bind %[2]s/passwd /etc/passwd
mount --bind %[2]s/group /etc/group
mount --bind %[3]s /etc/resolv.conf
mount -t tmpfs -o mode=755 tmpfs /run
/sbin/ldconfig -C %[2]s/ld.so.cache -f %[2]s/ld.so.conf
mount --bind %[2]s/ld.so.cache /etc/ld.so.cache
mkdir -p /run/courier/authdaemon /var/lib/courier/sts
chown -R courier:courier /run/courier /var/lib/courier
/usr/lib/courier/makealiases
cd /usr
set -a
. /etc/courier/authdaemonrc
. /etc/courier/courierd
. /etc/courier/esmtpd
ESMTP_BLOCKBACKSCATTER=
ESMTP_USE_STARTTLS=0
trap exit TERM
/usr/lib/courier/courier-authlib/authdaemond &
/usr/lib/courier/courier/courierd &
until [ -S /run/courier/authdaemon/socket ] && [ -p /var/lib/courier/tmp/trigger ]; do sleep 0.1; done
%[1]s/usr/sbin/couriertcpd -user=courier -group=courier -address=%[4]s -noidentlookup -nodnslookup -maxprocs=40 -maxperc=40 -maxperip=40 %[5]s %[1]s/usr/sbin/courieresmtpd &
wait
`, root, dir, resolvConf, addr, port))
	p := start(t, "courier", unshare, "-m", "-p", "--fork", "--kill-child", "sh", dir+"/run")
	p.listens(t, addr+":"+port)
}

// courierAccounts makes the homes of the recipients, each with an instruction in .courier that fails after the mail was
// accepted, and returns their lines of passwd(5).
func courierAccounts(t *testing.T, dir string) (passwd string) {
	t.Helper()
	uid, gid := idsOf(t, "nobody")
	passwd = fmt.Sprintf("courier:x:%d:%d::/var/lib/courier:/usr/sbin/nologin\n", uid, gid)
	writeFile(t, dir+"/group", fmt.Sprintf("root:x:0:\ncourier:x:%d:\n", gid))
	for local, instruction := range map[string]string{
		"unknown": `|echo "no such user here"; exit 67`,
		"full":    "./Maildir",
		"huge":    `|echo "message is too large for this mailbox"; exit 69`,
		"loop":    "&loop@courier.example",
	} {
		home := dir + "/home/" + local
		writeFile(t, home+"/.courier", instruction+"\n")
		passwd += fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", local, uid, gid, home)
	}
	for _, sub := range []string{"cur", "new", "tmp"} {
		mkdir(t, dir+"/home/full/Maildir/"+sub, uid, gid)
	}
	writeFile(t, dir+"/home/full/Maildir/maildirsize", "10S\n100 1\n") // a quota of ten octets
	runClient(t, "", "chown", "-R", fmt.Sprintf("%d:%d", uid, gid), dir+"/home")
	return passwd
}
