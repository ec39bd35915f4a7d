package maildrop

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

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"github.com/emersion/go-smtp"
)

// Config is the configuration of a Pickup.
type Config struct {
	Dir Dir
	// Session begins an SMTP session with the relay, by which letters come in. end ends it.
	Session  func() (client net.Conn, end func())
	Hostname func() string
	// MaxAge is how long a letter that the relay doesn't take is tried.
	MaxAge func() time.Duration
	// Report has a report to the sender written of the recipients that were refused.
	Report func(m *envelope.Message, refused []Refusal, content io.Reader) error
	Now    func() time.Time
	// Trusted is the time until which no letter is given up: the clock may be wrong.
	Trusted func() time.Time
	Log     *slog.Logger
}

// Refusal is a recipient, by its index in the letter, that the relay has refused for good.
type Refusal struct {
	Index int
	Reply reply.Reply
}

// Pickup takes the letters that sendmail left while the relay was away. It hands each letter to the relay in an SMTP
// session, so all checks, limits and records are those of any submission. A user who may add a file to the maildrop may
// submit, also where listeners demand a login. A refused letter comes back to its sender as a report.
//
// Its goroutine is Run.
type Pickup struct {
	c     Config
	hands chan struct{} // has space for the one who takes letters out, or keeps them in

	// begun is how far letters are that the listener has taken in part, by name.
	begun map[string]handed
	aside int // files that were set aside at this turn

	mu   sync.Mutex // guards the rest
	why  string     // the reason why nothing is picked up
	kept string     // the files that were set aside and are still there
}

// handed is how many recipients of a letter are dealt with, and which of them were refused.
type handed struct {
	next    int
	refused []Refusal
}

// NewPickup makes a Pickup. Nothing is picked up before Run.
func NewPickup(c Config) *Pickup {
	return &Pickup{c: c, hands: make(chan struct{}, 1), begun: make(map[string]handed)}
}

// Halt keeps letters in until resume is called.
func (p *Pickup) Halt(ctx context.Context) (resume func(), err error) {
	select {
	case p.hands <- struct{}{}:
		return sync.OnceFunc(func() { <-p.hands }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lookEvery is how often the maildrop is looked through. Most often it is empty.
const lookEvery = 5 * time.Second

// Run looks through the maildrop again and again until ctx ends.
func (p *Pickup) Run(ctx context.Context) {
	again := time.NewTicker(lookEvery)
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

// make makes the folder, and reports whether it is there.
func (p *Pickup) make() bool {
	err := p.c.Dir.Make()
	if err == nil {
		p.set("")
		return true
	}
	why := fmt.Sprintf("sendmail can leave no mail while the relay is away, and what it has left is not picked up: %v",
		err)
	if p.set(why) {
		p.c.Log.Error("there is no maildrop; the relay tries again every few seconds", "error", err)
	}
	return false
}

const (
	// turnSize is how many letters of one user are taken before those of the others have their turn.
	turnSize = 100
	// asideLogged is how many files that hold no letter have a line each in the log, of one look.
	asideLogged = 20
)

// all takes what there is. Users take turns.
func (p *Pickup) all(ctx context.Context) {
	for p.turn(ctx) {
	}
}

// turn takes up to turnSize letters of each user. It reports whether there are more.
func (p *Pickup) turn(ctx context.Context) (more bool) {
	var why error
	p.aside = 0
	turns := map[int]int{}
	used, err := p.c.Dir.Names(p.c.Now(), func(name string, uid int) {
		if ctx.Err() != nil {
			return
		}
		if turns[uid]++; turns[uid] > turnSize {
			more = true
			return
		}
		if err := p.one(ctx, name); err != nil {
			why = fmt.Errorf("letter %q: %w", name, err)
		}
	})
	if n := p.aside - asideLogged; n > 0 {
		p.c.Log.Error("more files in the maildrop were set aside or removed", "files", n)
	}
	if err == nil {
		err = why
	}
	if err == nil || ctx.Err() != nil {
		p.set("")
		return more && ctx.Err() == nil
	}
	p.set(fmt.Sprintf("mail that sendmail left in %s is not picked up%s: %v", p.c.Dir, p.filledBy(used), err))
	return false
}

// filledBy names, when the disk is nearly full, the user who has most of it in the
func (p *Pickup) filledBy(used map[int]*Use) string {
	uid, most := 0, int64(0)
	for id, u := range used {
		if n := u.LetterOctets + u.PartlyOctets; n > most {
			uid, most = id, n
		}
	}
	if most < 1<<20 || !p.c.Dir.Short() {
		return ""
	}
	return fmt.Sprintf(" (its disk is nearly full, and the user with id %d has %d MiB there)", uid, most>>20)
}

// tooOld reports whether a letter is given up that is not taken.
func (p *Pickup) tooOld(l *Letter) bool {
	now := p.c.Now()
	return now.Sub(l.Left) > p.c.MaxAge() && !p.c.Trusted().After(now)
}

// one takes a letter. An error leaves it where it is, for another time.
func (p *Pickup) one(ctx context.Context, name string) error {
	done, err := p.Halt(ctx)
	if err != nil {
		return err
	}
	defer done()
	l, err := p.c.Dir.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody has removed it
		delete(p.begun, name)
		return nil
	case errors.Is(err, ErrBroken):
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
			return p.setAside(name, fmt.Errorf("refused, and there is no sender to notify: %s", refused[0].Reply))
		}
		if err := p.c.Report(messageOf(l), refused, l.Content()); err != nil {
			return err
		}
	}
	delete(p.begun, name)
	p.c.Log.Info("picked up mail that sendmail left", "letter", name, "user", l.UID, "left", l.Left, "recipients",
		len(l.Recipients), "refused", len(refused))
	return p.c.Dir.Remove(name)
}

// setAside puts away what can't be used, for an operator to look at.
func (p *Pickup) setAside(name string, why error) error {
	delete(p.begun, name)
	path, err := p.c.Dir.SetAside(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; setting it aside: %w", why, err)
	}
	if p.aside++; p.aside <= asideLogged {
		p.c.Log.Error("a file in the maildrop was set aside", "file", name, "now", path, "error", why)
	}
	return nil
}

// look counts what was set aside: it is an alarm until an operator has looked at it.
func (p *Pickup) look() {
	n, _, err := p.c.Dir.Broken()
	kept := ""
	if err == nil && n > 0 {
		kept = fmt.Sprintf("%d files in %s are not mail that the relay can take: look at them, and remove them", n,
			filepath.Join(string(p.c.Dir), "broken"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = kept
}

// set sets the reason why nothing is picked up, "" for none. It reports whether that is another one.
func (p *Pickup) set(why string) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.why != why
	p.why = why
	return changed
}

// Trouble returns the reason why letters are not picked up, or that files were set aside; "" for neither.
func (p *Pickup) Trouble() string {
	p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != "" {
		return p.why
	}
	return p.kept
}

// messageOf is a letter as a report has it.
func messageOf(l *Letter) *envelope.Message {
	m := &envelope.Message{Sender: l.Sender, EnvID: l.ID, Received: l.Left, UTF8: l.UTF8, Size: l.Size}
	if l.Return == string(smtp.DSNReturnHeaders) {
		m.Ret = envelope.RetHeaders
	}
	var notify envelope.Notify
	for _, word := range l.Notify {
		notify |= map[string]envelope.Notify{
			"SUCCESS": envelope.NotifySuccess, "FAILURE": envelope.NotifyFailure, "DELAY": envelope.NotifyDelay,
			"NEVER": envelope.NotifyNever,
		}[word]
	}
	for _, r := range l.Recipients {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: r, Notify: notify})
	}
	return m
}

// restRefused is what becomes of the recipients, from one on, of a letter that is too old.
func restRefused(l *Letter, from int, why error) (rest []Refusal) {
	for i := from; i < len(l.Recipients); i++ {
		rest = append(rest,
			Refusal{i, reply.Local(554, reply.Enhanced{5, 4, 7}, "submission",
				"the message was too old before the relay could take it: %v", why)})
	}
	return rest
}

// handTime bounds one session.
const handTime = 10 * time.Minute

// hand gives a letter to the relay. An error means that the rest is to be tried again.
func (p *Pickup) hand(ctx context.Context, l *Letter) error {
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	conn, end := p.c.Session()
	defer end()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	client := smtp.NewClient(conn)
	defer client.Close()
	if err := client.Hello(p.c.Hostname()); err != nil {
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
func (p *Pickup) transaction(client *smtp.Client, l *Letter, from int) (next int, refused []Refusal, err error) {
	all := func(err error) (int, []Refusal, error) {
		r, ok := permanent(err)
		if !ok {
			return from, nil, err
		}
		var refused []Refusal
		for i := from; i < len(l.Recipients); i++ {
			refused = append(refused, Refusal{i, r})
		}
		return len(l.Recipients), refused, nil
	}
	if err := client.Mail(string(l.Sender),
		&smtp.MailOptions{Size: l.Size, Return: smtp.DSNReturn(l.Return), EnvelopeID: l.ID, UTF8: l.UTF8}); err != nil {
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
			refused = append(refused, Refusal{next, r})
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
func (p *Pickup) content(client *smtp.Client, l *Letter) error {
	w, err := client.Data()
	if err != nil {
		return err
	}
	field := fmt.Sprintf("Received: by %s (mta, from userid %d)\r\n\tid %s; %s\r\n",
		p.c.Hostname(), l.UID, l.Name, l.Left.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
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
	return reply.Reply{Code: answer.Code, Enhanced: enhanced, Text: answer.Message, Command: "submission", Local: true},
		true
}
