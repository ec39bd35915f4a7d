package mta

import (
	"errors"
	"fmt"
	"net/smtp"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/listen"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// TestTortureLargeMessagesOnAFullDisk sends large messages to a relay from many clients at once, on a disk that
// has room for a few, some of them with SIZE, and all of them stop halfway for a while. Those that don't fit get
// 452; all else is taken and delivered, small mail at any time; and min_free stays free throughout.
func TestTortureLargeMessagesOnAFullDisk(t *testing.T) {
	t.Parallel()
	clients, size := 14, 1<<20
	if os.Getenv("MTA_TORTURE") != "" {
		size = 45 << 20
	}
	minFree := int64(2 * size)
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	disk := &vfstest.Tight{FS: vfs.OS(), Dir: datadir.Queue(w.cfg), Below: []string{"large"}, Capacity: minFree + minFree/2 + 6*int64(size)}
	w.given.QueueFS, w.cfg.Queue.MinFree, w.cfg.Queue.SegmentSize = disk, config.Size(minFree), 1<<20
	w.start()
	content := "Subject: large\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", size/72)
	var half, all sync.WaitGroup
	half.Add(clients)
	goOn := make(chan struct{})
	var taken, refused atomic.Int64
	for i := range clients {
		all.Go(func() {
			err := sendSlowly(w.listeners.Addresses(listen.SMTP)[0], content, i%2 == 0, half.Done, goOn)
			var reply *textproto.Error
			switch {
			case err == nil:
				taken.Add(1)
			case errors.As(err, &reply) && reply.Code == 452:
				refused.Add(1)
			default:
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	half.Wait()
	for range 10 { // the clients stand still, or were refused at MAIL
		w.send("ann@client.example", letter, "bob@box.example")
	}
	w.arrived(10)
	close(goOn)
	all.Wait()
	w.arrived(10 + taken.Load())
	t.Logf("%d of %d large messages of %d MiB were taken, %d refused; %d MiB were free at the least, min_free is %d MiB",
		taken.Load(), clients, size>>20, refused.Load(), disk.Lowest()>>20, minFree>>20)
	if taken.Load() < 2 || refused.Load() < 2 {
		t.Error("want some of both")
	}
	if disk.Lowest() < minFree {
		t.Errorf("%d octets were free at the least, want %d", disk.Lowest(), minFree)
	}
}

// sendSlowly sends half of a message, calls half and waits for goOn, and sends the rest.
func sendSlowly(addr, content string, declare bool, half func(), goOn <-chan struct{}) error {
	once := sync.OnceFunc(half)
	defer once()
	c, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Hello("client.example"); err != nil {
		return err
	}
	size := ""
	if declare {
		size = fmt.Sprintf(" SIZE=%d", len(content))
	}
	for _, line := range []string{"MAIL FROM:<ann@client.example>" + size, "RCPT TO:<bob@box.example>"} {
		id, err := c.Text.Cmd("%s", line)
		if err != nil {
			return err
		}
		c.Text.StartResponse(id)
		_, _, err = c.Text.ReadResponse(250)
		c.Text.EndResponse(id)
		if err != nil {
			return err
		}
	}
	d, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(d, content[:len(content)/2]); err != nil {
		return err
	}
	<-time.After(100 * time.Millisecond) // it arrives
	once()
	<-goOn
	if _, err := fmt.Fprint(d, content[len(content)/2:]); err != nil {
		return err
	}
	return d.Close()
}
