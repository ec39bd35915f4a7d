package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// TestStreamsOnALogDiskInTrouble runs a relay with a stream whose accounting log has a real disk (ext4 on a loop device)
// that is full, hangs or has become read-only. Mail is delivered meanwhile; records that don't fit into memory are counted
// by Lost; and once the disk works again, the stream goes on by itself, and has each record of the log, without a Gap.
func TestStreamsOnALogDiskInTrouble(t *testing.T) {
	t.Parallel() // the parts take turns
	needRoot(t)
	for name, trouble := range map[string]func(*logDisk, *testing.T) (mend func()){"full": (*logDisk).fill, "hangs": (*logDisk).freeze, "read-only": (*logDisk).spoil} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			testLogDisk(t, trouble)
		})
	}
}

func testLogDisk(t *testing.T, trouble func(*logDisk, *testing.T) (mend func())) {
	disk := newLogDisk(t)
	h := &eventHook{addr: freeAddress(t), account: newEventAccount()}
	h.begin(t)
	defer h.end(true)
	g := farSites(t, 1, sink.Config{})
	r := newRelay(t, g.DNS, g.Port, takingAll+fmt.Sprintf("accounting { path = %q }\nstream \"app\" {\n  to = \"http://%s/\"\n  linger = \"50ms\"\n}\n", disk.dir+"/log", h.addr))
	r.process = launchRelay(t, r.logged(t))
	r.listens(t, r.addr)
	d := &diskGround{g: g, r: r, disk: disk}

	well := d.flow(t, 2000)
	mend := trouble(disk, t)
	const recipients = 40_000 // whose records are more than the relay keeps in memory
	ill := d.flow(t, recipients)
	if log, err := os.ReadFile(r.log); err != nil || !strings.Contains(string(log), "accounting records can't be written") && !strings.Contains(string(log), "accounting records were dropped") {
		if !strings.Contains(t.Name(), "hangs") { // the write has neither failed nor ended
			t.Errorf("the relay's log does not mention the trouble (%v)", err)
		}
	}
	mend()
	again := d.flow(t, 2000)
	lost := d.settled(t, h)
	t.Logf("recipients a second: %.0f, in trouble %.0f, then %.0f; %d of %d records lost", well, ill, again, lost, 2*d.recipients)
	if lost == 0 || lost > 2*recipients {
		t.Errorf("%d records are lost, want some of %d", lost, 2*recipients)
	}
	r.stop(20 * time.Second)
	sound(t, r.process)
}

// diskGround is a relay under load.
type diskGround struct {
	g          *far
	r          *relay
	disk       *logDisk
	recipients int
}

// flow sends mail to so many recipients, a thousand in a message, waits for its delivery, and gives the rate.
func (d *diskGround) flow(t *testing.T, recipients int) float64 {
	t.Helper()
	began, first := time.Now(), d.recipients
	d.recipients += recipients
	l := &bench.Load{Messages: recipients / 1000, Connections: 4, Size: 2048, To: func(n int) (to []string) {
		for i := range 1000 {
			to = append(to, fmt.Sprintf("user%d@%s", first+1000*n+i, d.g.Domains[0].Name))
		}
		return to
	}}
	if err := l.Run(t.Context(), d.r.addr); err != nil {
		t.Fatalf("submitting: %v", err)
	}
	d.r.drained(t, patience)
	return float64(recipients) / time.Since(began).Seconds()
}

// settled waits until the hook has all records of the log, which has one of each Reception and Delivery but those that
// Lost counts. It gives their number.
func (d *diskGround) settled(t *testing.T, h *eventHook) (lost int) {
	t.Helper()
	var logged map[string][]string
	eventually(t, patience, func() error {
		records := 0
		lost, records = 0, 0
		logged = make(map[string][]string)
		_, err := accounting.ReadFrom(t.Context(), d.disk.dir+"/log", accounting.Position{}, accounting.Position{}, func(_, _ accounting.Position, line []byte) error {
			var r struct {
				Type, ID string
				EventID  string `json:"event_id"`
				Count    int
			}
			if err := json.Unmarshal(line, &r); err != nil {
				return err
			}
			if records++; r.Type == "Lost" {
				lost += r.Count
				records--
			}
			logged[r.ID] = append(logged[r.ID], r.EventID)
			return nil
		})
		if err == nil && records+lost != 2*d.recipients {
			err = fmt.Errorf("the log has %d records and %d lost ones, want %d", records, lost, 2*d.recipients)
		}
		return err
	})
	events := 0
	for _, ids := range logged {
		events += len(ids)
	}
	err := allCome("events", events, h.account.different)
	if err := errors.Join(err, h.account.has(logged)); err != nil {
		t.Fatal(err)
	}
	if n := h.account.different(); n != events {
		t.Errorf("the hook has %d events, and the log %d", n, events)
	}
	return lost
}

// logDisk is a file system of its own, in a file.
type logDisk struct{ image, dir string }

// newLogDisk makes a disk of 256 MiB, until the test's end.
func newLogDisk(t *testing.T) *logDisk {
	t.Helper()
	need(t, "mkfs.ext4", "mount", "umount", "fsfreeze", "findmnt")
	d := &logDisk{image: scratch(t) + "/image"}
	d.dir = filepath.Dir(d.image) + "/disk"
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(256<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	runClient(t, "", "mkfs.ext4", "-q", "-O", "^has_journal", d.image)
	if out, err := exec.Command("mount", "-o", "loop,errors=remount-ro", d.image, d.dir).CombinedOutput(); err != nil {
		cannot(t, fmt.Sprintf("mounting a file: %s", out))
	}
	t.Cleanup(func() {
		_ = exec.Command("umount", "-l", d.dir).Run()
	})
	return d
}

// fill leaves no room.
func (d *logDisk) fill(t *testing.T) (mend func()) {
	f, err := os.Create(d.dir + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { os.Remove(f.Name()) }
}

// freeze has writes wait.
func (d *logDisk) freeze(t *testing.T) (mend func()) {
	runClient(t, "", "fsfreeze", "-f", d.dir)
	thaw := func() { _ = exec.Command("fsfreeze", "-u", d.dir).Run() }
	t.Cleanup(thaw) // before the disk goes
	return thaw
}

// spoil has the kernel find an error, upon which the file system takes no more writes. A repaired copy is mounted over it,
// since the relay has files of the old one open. Nothing is unmounted before: the relay would make its folder anew below
// the mount, and write records there that nobody finds.
func (d *logDisk) spoil(t *testing.T) (mend func()) {
	device := strings.TrimSpace(runClient(t, "", "findmnt", "-no", "SOURCE", d.dir))
	if err := os.WriteFile("/sys/fs/ext4/"+filepath.Base(device)+"/trigger_fs_error", []byte("1"), 0); err != nil {
		cannot(t, err.Error())
	}
	return func() {
		runClient(t, "", "cp", "--sparse=always", d.image, d.image+"2")
		_ = exec.Command("fsck.ext4", "-fy", d.image+"2").Run() // status 1: it has mended something
		runClient(t, "", "mount", "-o", "loop", d.image+"2", d.dir)
		t.Cleanup(func() { _ = exec.Command("umount", "-l", d.dir).Run() })
	}
}
