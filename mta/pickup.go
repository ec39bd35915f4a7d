package mta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"example.org/mta/delivery"
	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/submission/maildrop"
)

// pickup takes what sendmail left in the maildrop while the relay was away. It hands each letter to
// the relay in an SMTP session: so all checks, limits and records are those of any submission. Who may
// add a file to the maildrop may submit, also where listeners demand a login. What the relay refuses
// comes back to the sender as a report.
//
// Its goroutine is run.
type pickup struct {
	dir     maildrop.Dir
	session func() (client net.Conn, end func())
	policy  func() *wiring.Policy
	report  func(n dispatch.Notification, attempts []dispatch.Attempt, content io.Reader) error
	now     func() time.Time
	trusted func() time.Time // until when nothing expires, see queue.NothingExpiresBefore
	log     *slog.Logger

	hands chan struct{} // has room for whoever takes letters out, or keeps them in

	// begun is how far letters are that the listener has taken in part, by name.
	begun map[string]handed
	aside int // files that were set aside at this look

	mu   sync.Mutex // guards what follows
	why  string     // what is in the way just now
	kept string     // what was set aside last
}

// handed is how many recipients of a letter are dealt with, and which of them were refused.
type handed struct {
	next    int
	refused []dispatch.Attempt
}

func newPickup(r *Relay, reports *dispatch.ReportWriter) *pickup {
	return &pickup{
		dir:     maildrop.Dir(maildropDir(r.policy.Load().Config.DataDir)),
		session: r.localSession,
		policy:  r.policy.Load,
		report:  reports.Commit,
		now:     r.now,
		trusted: r.queue.NothingExpiresBefore,
		log:     r.log,

		hands: make(chan struct{}, 1),
		begun: make(map[string]handed),
	}
}

// halt lets no letter be taken out before resume is called.
func (p *pickup) halt(ctx context.Context) (resume func(), err error) {
	select {
	case p.hands <- struct{}{}:
		return sync.OnceFunc(func() { <-p.hands }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// maildropDir is where sendmail leaves mail, within the data directory.
func maildropDir(dataDir string) string { return filepath.Join(dataDir, config.Maildrop) }

// pickupEvery is how often the maildrop is looked through. Most often it is empty.
const pickupEvery = 5 * time.Second

func (p *pickup) run(ctx context.Context) {
	again := time.NewTicker(pickupEvery)
	defer again.Stop()
	for made := false; ; {
		if !made {
			made = p.make()
		}
		if made {
			p.all(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// make makes the maildrop. It reports whether that is there.
func (p *pickup) make() bool {
	err := p.dir.Make()
	if err == nil {
		p.set("")
		return true
	}
	why := fmt.Sprintf("sendmail can leave no mail while the relay is away, and what it has left is not picked up: %v", err)
	if p.set(why) {
		p.log.Error("there is no maildrop; the relay tries again every few seconds", "error", err)
	}
	return false
}

const (
	// pickupTurn is how many letters of one user are taken before those of the others have their turn.
	pickupTurn = 100
	// asideLogged is how many files that hold no letter have a line each in the log, of one look.
	asideLogged = 20
)

// all takes what there is. Users take turns.
func (p *pickup) all(ctx context.Context) {
	for p.turn(ctx) {
	}
}

// turn takes up to pickupTurn letters of each user. It reports whether there are more.
func (p *pickup) turn(ctx context.Context) (more bool) {
	var why error
	p.aside = 0
	turns := map[int]int{}
	used, err := p.dir.Names(p.now(), func(name string, uid int) {
		if ctx.Err() != nil {
			return
		}
		if turns[uid]++; turns[uid] > pickupTurn {
			more = true
			return
		}
		if err := p.one(ctx, name); err != nil {
			why = fmt.Errorf("letter %q: %w", name, err)
		}
	})
	if n := p.aside - asideLogged; n > 0 {
		p.log.Error("more files in the maildrop were set aside or removed", "files", n)
	}
	if err == nil {
		err = why
	}
	if err == nil || ctx.Err() != nil {
		p.set("")
		return more && ctx.Err() == nil
	}
	p.set(fmt.Sprintf("mail that sendmail left in %s is not picked up%s: %v", p.dir, p.filledBy(used), err))
	return false
}

// filledBy names, when the disk is nearly full, the user who has most of it in the maildrop.
func (p *pickup) filledBy(used map[int]*maildrop.Use) string {
	uid, most := 0, int64(0)
	for id, u := range used {
		if n := u.LetterOctets + u.PartlyOctets; n > most {
			uid, most = id, n
		}
	}
	if most < 1<<20 || !p.dir.Short() {
		return ""
	}
	return fmt.Sprintf(" (its disk is nearly full, and the user with id %d has %d MiB there)", uid, most>>20)
}

// tooOld reports whether a letter is given up that is not taken.
func (p *pickup) tooOld(l *maildrop.Letter) bool {
	now := p.now()
	return now.Sub(l.Left) > p.policy().Config.Defaults.Traffic.MaxAge && !p.trusted().After(now)
}

// one takes a letter. An error leaves it where it is, for another time.
func (p *pickup) one(ctx context.Context, name string) error {
	done, err := p.halt(ctx)
	if err != nil {
		return err
	}
	defer done()
	l, err := p.dir.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody has removed it
		delete(p.begun, name)
		return nil
	case errors.Is(err, maildrop.ErrBroken):
		return p.setAside(name, err)
	case err != nil:
		return err
	}
	defer l.Close()
	err = p.hand(ctx, l)
	if err != nil && !p.tooOld(l) {
		return err
	}
	refused := p.begun[name].refused
	if err != nil {
		refused = append(refused, restRefused(l, p.begun[name].next, err)...)
	}
	if len(refused) > 0 {
		if l.Sender.Null() {
			return p.setAside(name, fmt.Errorf("refused, and there is no sender to notify: %s", refused[0].Result.Reply))
		}
		m := messageOf(l)
		n := dispatch.Notification{Kind: dispatch.NotifyFailed, Message: m, Attempts: refused}
		if wanted := n.Wanted(); len(wanted) > 0 {
			if err := p.report(n, wanted, l.Content()); err != nil {
				return err
			}
		}
	}
	delete(p.begun, name)
	p.log.Info("picked up mail that sendmail left", "letter", name, "user", l.UID, "left", l.Left, "recipients", len(l.Recipients), "refused", len(refused))
	return p.dir.Remove(name)
}

// setAside puts away what can't be used, for an operator to look at.
func (p *pickup) setAside(name string, why error) error {
	delete(p.begun, name)
	path, err := p.dir.SetAside(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; setting it aside: %w", why, err)
	}
	if p.aside++; p.aside <= asideLogged {
		p.log.Error("a file in the maildrop was set aside", "file", name, "now", path, "error", why)
	}
	return nil
}

// look counts what was set aside: it is an alarm until an operator has looked at it.
func (p *pickup) look() {
	n, _, err := p.dir.Broken()
	kept := ""
	if err == nil && n > 0 {
		kept = fmt.Sprintf("%d files in %s are no mail that the relay can take: look at them, and remove them", n, filepath.Join(string(p.dir), "broken"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = kept
}

// set sets the reason why nothing is picked up, "" for none. It reports whether that is another one.
func (p *pickup) set(why string) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.why != why
	p.why = why
	return changed
}

// trouble returns what an operator should know of, "" for nothing.
func (p *pickup) trouble() string {
	p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != "" {
		return p.why
	}
	return p.kept
}

// messageOf is a letter as a report has it.
func messageOf(l *maildrop.Letter) *envelope.Message {
	m := &envelope.Message{Sender: l.Sender, EnvID: l.ID, Received: l.Left, UTF8: l.UTF8, Size: l.Size}
	if l.Return == string(smtp.DSNReturnHeaders) {
		m.Ret = envelope.RetHeaders
	}
	var notify envelope.Notify
	for _, word := range l.Notify {
		notify |= map[string]envelope.Notify{
			"SUCCESS": envelope.NotifySuccess, "FAILURE": envelope.NotifyFailure, "DELAY": envelope.NotifyDelay, "NEVER": envelope.NotifyNever,
		}[word]
	}
	for _, r := range l.Recipients {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: r, Notify: notify})
	}
	return m
}

func refusal(index int, r reply.Reply) dispatch.Attempt {
	return dispatch.Attempt{Pending: queue.Pending{Index: index}, Result: delivery.Result{Recipient: index, Reply: r}}
}

// restRefused is what becomes of the recipients, from one on, of a letter that is too old.
func restRefused(l *maildrop.Letter, from int, why error) (rest []dispatch.Attempt) {
	for i := from; i < len(l.Recipients); i++ {
		rest = append(rest, refusal(i, reply.Local(554, reply.Enhanced{5, 4, 7}, "submission", "the message was too old before the relay could take it: %v", why)))
	}
	return rest
}

// handTime bounds one session.
const handTime = 10 * time.Minute

// hand gives a letter to the relay. An error means that the rest is to be tried again.
func (p *pickup) hand(ctx context.Context, l *maildrop.Letter) error {
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	conn, end := p.session()
	defer end()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	client := smtp.NewClient(conn)
	defer client.Close()
	if err := client.Hello(p.policy().Config.Hostname); err != nil {
		return err
	}
	for p.begun[l.Name].next < len(l.Recipients) {
		done := p.begun[l.Name]
		next, refused, err := p.transaction(client, l, done.next)
		if err != nil {
			return err
		}
		p.begun[l.Name] = handed{next, append(done.refused, refused...)}
	}
	_ = client.Quit() // the relay has it, whatever becomes of the connection
	return nil
}

// transaction sends to the recipients from one on, as many as the listener takes at once. It returns
// where to go on.
func (p *pickup) transaction(client *smtp.Client, l *maildrop.Letter, from int) (next int, refused []dispatch.Attempt, err error) {
	all := func(err error) (int, []dispatch.Attempt, error) {
		r, ok := permanent(err)
		if !ok {
			return from, nil, err
		}
		var refused []dispatch.Attempt
		for i := from; i < len(l.Recipients); i++ {
			refused = append(refused, refusal(i, r))
		}
		return len(l.Recipients), refused, nil
	}
	if err := client.Mail(string(l.Sender), &smtp.MailOptions{Size: l.Size, Return: smtp.DSNReturn(l.Return), EnvelopeID: l.ID, UTF8: l.UTF8}); err != nil {
		return all(err)
	}
	taken := 0
	for next = from; next < len(l.Recipients); next++ {
		err := client.Rcpt(string(l.Recipients[next]), &smtp.RcptOptions{Notify: notifyWords(l.Notify)})
		r, ok := permanent(err)
		switch {
		case err == nil:
			taken++
			continue
		case ok:
			refused = append(refused, refusal(next, r))
			continue
		case taken == 0:
			return from, nil, err
		}
		break // as many as it takes for now
	}
	if taken == 0 {
		return next, refused, client.Reset()
	}
	if err := p.content(client, l); err != nil {
		return all(err)
	}
	return next, refused, nil
}

// content sends the message, with a field that says whose it is: the file's owner can't be forged.
func (p *pickup) content(client *smtp.Client, l *maildrop.Letter) error {
	w, err := client.Data()
	if err != nil {
		return err
	}
	field := fmt.Sprintf("Received: by %s (mta, from userid %d)\r\n\tid %s; %s\r\n",
		p.policy().Config.Hostname, l.UID, l.Name, l.Left.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	if _, err := io.Copy(w, io.MultiReader(strings.NewReader(field), l.Content())); err != nil {
		return err
	}
	_, err = w.CloseWithResponse()
	return err
}

func notifyWords(words []string) (all []smtp.DSNNotify) {
	for _, w := range words {
		all = append(all, smtp.DSNNotify(w))
	}
	return all
}

// permanent gives the listener's answer when that is a refusal for good.
func permanent(err error) (reply.Reply, bool) {
	answer := (*smtp.SMTPError)(nil)
	if !errors.As(err, &answer) || answer.Code < 500 {
		return reply.Reply{}, false
	}
	e := answer.EnhancedCode
	enhanced := reply.Enhanced{5, 0, 0}
	if e[0] == 5 {
		enhanced = reply.Enhanced{uint16(e[0]), uint16(e[1]), uint16(e[2])}
	}
	return reply.Reply{Code: answer.Code, Enhanced: enhanced, Text: answer.Message, Command: "submission", Local: true}, true
}
