package sink

// Phase is a step of a session that can be made to go wrong. The words are those of
// reply.Reply.Command where both have one.
type Phase uint8

const (
	Connect  Phase = iota // the connection was made, the banner not sent
	Greeting              // the banner was sent; a drop or a stray reply comes right after it
	Hello                 // EHLO or HELO
	StartTLS
	Auth
	Mail
	Rcpt
	Data    // DATA, before its 354
	Content // within the content: after a part of it was read
	End     // the whole content was read: a drop loses the message, a refusal is heard
	Kept    // the message was recorded: a drop or a swallowed reply leaves the client in doubt
	Reset
	Noop
	Quit
	phases // their number
)

var phaseNames = [phases]string{"connect", "greeting", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA",
	"content", "end", "kept", "RSET", "NOOP", "QUIT"}

// String gives the command's name, or a word for what is none.
func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return "unknown"
}

// chances is a chance for each phase.
type chances [phases]float64

func chancesOf(m map[Phase]float64) chances {
	var c chances
	for p, v := range m {
		c[p] = v
	}
	return c
}
