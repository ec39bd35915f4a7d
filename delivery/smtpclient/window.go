package smtpclient

// Window bounds what is under way in Chunked mode: whole messages sent, or being sent, that the
// host has not answered. It is also what can be Ambiguous at worst when the connection breaks.
type Window struct {
	Messages int
	Bytes    int64 // content octets; a message may begin while fewer are under way
}

// The window of a host of which nothing is known, and what it may grow to.
var (
	firstWindow   = Window{Messages: 1, Bytes: 256 << 10}
	defaultMaxWin = Window{Messages: 64, Bytes: 4 << 20}
)

// orDefault fills in what is not given.
func (w Window) orDefault(d Window) Window {
	if w.Messages <= 0 {
		w.Messages = d.Messages
	}
	if w.Bytes <= 0 {
		w.Bytes = d.Bytes
	}
	return w
}

func (w Window) min(max Window) Window {
	return Window{Messages: min(w.Messages, max.Messages), Bytes: min(w.Bytes, max.Bytes)}
}

func (w Window) half() Window {
	return Window{Messages: max(w.Messages/2, 1), Bytes: max(w.Bytes/2, firstWindow.Bytes)}
}

// pacedWindow grows by what it learns, as TCP's congestion window does: while nothing has gone
// wrong by one message with each message taken, so that it doubles every round trip; after
// trouble by one message for each window of messages taken. Only messages that were under way when
// the window was full count: an idle connection has shown nothing.
type pacedWindow struct {
	Window
	limit     Window
	careful   bool // there was trouble: linear growth
	successes int  // messages taken since the last growth, when careful

	// The number of the last message that was under way while the window was full.
	fullMessages, fullBytes int
}

func newPacedWindow(start, limit Window) pacedWindow {
	w := pacedWindow{limit: limit.orDefault(defaultMaxWin)}
	w.set(start)
	return w
}

func (w *pacedWindow) set(to Window) {
	w.Window = to.orDefault(firstWindow).min(w.limit)
	w.careful, w.successes = false, 0
}

// open reports whether one more message may begin.
func (w *pacedWindow) open(messages int, bytes int64) bool {
	return messages == 0 || messages < w.Messages && bytes < w.Bytes
}

// begun learns what is under way, now that the number-th message of the connection is too.
func (w *pacedWindow) begun(number, messages int, bytes int64) {
	if messages >= w.Messages {
		w.fullMessages = number
	}
	if bytes >= w.Bytes {
		w.fullBytes = number
	}
}

// succeeded learns that the number-th message, of size octets, was taken.
func (w *pacedWindow) succeeded(number int, size int64) {
	byMessages, byBytes := number <= w.fullMessages, number <= w.fullBytes
	if !byMessages && !byBytes {
		return
	}
	if w.careful {
		if w.successes++; w.successes < w.Messages {
			return
		}
		w.successes = 0
	}
	if byMessages {
		w.Messages++
	}
	if byBytes {
		w.Bytes += size
	}
	w.Window = w.Window.min(w.limit)
}

// troubled learns from a refusal for the time being or a connection that broke.
func (w *pacedWindow) troubled() {
	w.Window = w.half()
	w.careful, w.successes = true, 0
}

// distrusted learns from a host that answers out of step.
func (w *pacedWindow) distrusted() {
	w.Window = firstWindow.min(w.limit)
	w.careful = true
}
