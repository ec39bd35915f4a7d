package top

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"example.org/mta/operator/api"
)

// Config is what a screen needs.
type Config struct {
	Relay   *api.Client
	Printer Printer
	Now     func() time.Time
	Every   time.Duration // between refreshes; a relay that answers slowly is asked less often
	Table   string        // the one that is shown first, by its name; "" for sites
	Cluster bool          // all nodes of the relay's cluster
	Caller  string        // who is at the terminal, for pauses where the system does not know
}

func (c *Config) table() Table { return Table(max(0, slices.Index(Tables(), c.Table))) }

// Ask returns the data of one screen, for programs.
func Ask(ctx context.Context, c Config) (*Data, error) {
	f := fetch{table: c.table(), rates: true}
	return c.ask(ctx, &f)
}

// ask asks for a screen.
func (c *Config) ask(ctx context.Context, f *fetch) (*Data, error) {
	if c.Cluster {
		return f.askAll(ctx, c.Relay, c.Now())
	}
	return f.ask(ctx, c.Relay, c.Now())
}

// Once returns one screen as text, also beside the error of nodes that have not answered.
func Once(ctx context.Context, c Config, width, height int) (string, error) {
	d, err := Ask(ctx, c)
	if err != nil {
		return "", err
	}
	m := newModel(d.Time, c.Every, c.table())
	m.bare = true
	m.update(resized{width, height})
	m.update(answered{data: d})
	if len(d.Failed) > 0 {
		err = d.Failed
	}
	return m.draw().text(), err
}

// Run shows the screen until the operator quits, ctx ends, or the terminal is gone. The screen has been begun by Init;
// Run doesn't end it.
func Run(ctx context.Context, c Config, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{Config: c, screen: screen, events: make(chan any), m: newModel(c.Now(), c.Every, c.table()),
		unwatch: func() {}}
	defer s.group.Wait()
	defer cancel()
	for _, f := range fallbacks {
		screen.RegisterRuneFallback(f.r, f.ascii)
	}
	clock := time.NewTicker(min(time.Second, c.Every))
	defer clock.Stop()
	s.m.width, s.m.height = screen.Size()
	s.update(ctx, tick(c.Now()))
	for !s.over {
		s.show()
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-screen.EventQ():
			if !ok {
				return errors.New("the terminal is gone")
			}
			s.terminal(ctx, e)
		case e := <-s.events:
			s.update(ctx, e)
		case <-clock.C:
			s.update(ctx, tick(c.Now()))
		}
	}
	return nil
}

// fallbacks are for terminals whose character set lacks what is drawn.
var fallbacks = []struct {
	r     rune
	ascii string
}{{'▁', "_"}, {'▂', "."}, {'▃', "-"}, {'▄', "-"}, {'▅', "="}, {'▆', "="}, {'▇', "#"}, {'█', "#"}, {'…', "~"},
	{'▲', "^"}, {'▼', "v"}}

// session is a run: the model, and what goes on beside it.
type session struct {
	Config
	screen  tcell.Screen
	m       *Model
	events  chan any
	over    bool
	group   sync.WaitGroup // those who send to events
	unwatch context.CancelFunc
}

// terminal takes an event of the terminal.
func (s *session) terminal(ctx context.Context, e tcell.Event) {
	switch e := e.(type) {
	case *tcell.EventResize:
		// Not the event's size: tmux 3.3 reports its lines as columns.
		s.screen.Sync()
		width, height := s.screen.Size()
		s.update(ctx, resized{width, height})
	case *tcell.EventKey:
		if k, ok := keyOf(e); ok {
			s.update(ctx, k)
		}
	}
}

var namedKeys = map[tcell.Key]Key{
	tcell.KeyUp: keyUp, tcell.KeyDown: keyDown, tcell.KeyLeft: keyLeft, tcell.KeyRight: keyRight,
	tcell.KeyPgUp: keyPageUp, tcell.KeyPgDn: keyPageDown, tcell.KeyHome: keyHome,
	tcell.KeyEnd: keyEnd, tcell.KeyEnter: keyEnter, tcell.KeyEscape: keyEscape, tcell.KeyTab: keyTab,
	tcell.KeyBacktab: keyBacktab, tcell.KeyBackspace: keyBackspace,
	tcell.KeyCtrlC: keyInterrupt, tcell.KeyCtrlL: keyRedraw, tcell.KeyCtrlU: keyClear,
}

// keyOf names a key; false for one that means nothing here.
func keyOf(e *tcell.EventKey) (Key, bool) {
	if k, ok := namedKeys[e.Key()]; ok {
		return k, true
	}
	if e.Key() == tcell.KeyRune && e.Modifiers()&(tcell.ModCtrl|tcell.ModAlt|tcell.ModMeta) == 0 {
		return Key(e.Str()), true
	}
	return "", false
}

// patience is how long an answer may take.
const patience = 30 * time.Second

// update hands an event to the model and does what that asks for.
func (s *session) update(ctx context.Context, event any) {
	for _, todo := range s.m.update(event) {
		switch t := todo.(type) {
		case quit:
			s.over = true
		case redraw:
			s.screen.Sync()
		case unwatch:
			s.unwatch()
		case watch:
			s.watch(ctx, t)
		case fetch:
			s.request(ctx, func(ctx context.Context) any {
				begun := s.Now()
				d, err := s.ask(ctx, &t)
				took := s.Now().Sub(begun)
				if err == nil && s.Cluster { // a silent node has no work
					took = d.took
				}
				return answered{d, err, took}
			})
		case explain:
			s.request(ctx, func(ctx context.Context) any {
				text, err := t.print(api.AtNode(ctx, t.row.node), s.Relay, s.Printer)
				return said{t.id, strings.Split(strings.TrimRight(textOr(text, err), "\n"), "\n"), true}
			})
		case dryRun:
			s.request(ctx, func(ctx context.Context) any { return t.action.count(t.action.at(ctx), s.Relay) })
		case carry:
			s.request(ctx, func(ctx context.Context) any { return t.action.do(t.action.at(ctx), s.Relay, s.Caller) })
		}
	}
}

// request asks the relay beside the screen. The answer is an event.
func (s *session) request(ctx context.Context, ask func(context.Context) any) {
	s.group.Go(func() {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		s.send(ctx, ask(limited))
	})
}

// send hands an event to the screen, unless that has ended.
func (s *session) send(ctx context.Context, event any) error {
	select {
	case s.events <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch follows conversations until unwatch.
func (s *session) watch(ctx context.Context, w watch) {
	ctx, s.unwatch = context.WithCancel(ctx)
	s.group.Go(func() {
		out := lineWriter(func(lines []string) error { return s.send(ctx, said{id: w.id, lines: lines}) })
		err := s.Printer.Trace(api.AtNode(ctx, w.node), w.query, out, w.width)
		if ctx.Err() == nil {
			// else the screen has ended
			_ = s.send(ctx, said{w.id, []string{textOr("the relay has stopped", err)}, true})
		}
	})
}

// lineWriter hands on what is written, which is whole lines.
type lineWriter func(lines []string) error

func (f lineWriter) Write(p []byte) (int, error) {
	return len(p), f(strings.Split(strings.TrimSuffix(string(p), "\n"), "\n"))
}

// show brings the terminal up to date with the model.
func (s *session) show() {
	c := s.m.draw()
	for y := range c.height {
		for x := range c.width {
			i := y*c.width + x
			if text := c.cells[i].text; text != "" {
				s.screen.Put(x, y, text, looks[c.cells[i].style])
			}
		}
	}
	s.screen.HideCursor()
	s.screen.Show()
}

// looks are the styles on a terminal; one without colours leaves those out.
var looks = [...]tcell.Style{
	plain:   tcell.StyleDefault,
	strong:  tcell.StyleDefault.Bold(true),
	faint:   tcell.StyleDefault.Foreground(color.Teal),
	chosen:  tcell.StyleDefault.Reverse(true),
	good:    tcell.StyleDefault.Foreground(color.Green),
	waiting: tcell.StyleDefault.Foreground(color.Olive),
	bad:     tcell.StyleDefault.Foreground(color.Maroon).Bold(true),
}
