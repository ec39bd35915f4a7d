package sendmail

import (
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"github.com/emersion/go-smtp"

	"example.org/mta/internal/envelope"
)

// Mode is what sendmail is called for.
type Mode byte

const (
	ModeSend    Mode = iota // a message
	ModeSMTP                // -bs
	ModeList                // -bp
	ModeFlush               // -q
	ModeAliases             // -bi, -I
	ModeHelp                // --help
)

// Options is a command line of sendmail.
type Options struct {
	Mode   Mode
	Config string // -C

	fromHeader bool // -t
	ignoreDots bool // -i
	sender     string
	senderSet  bool // a sender that is "" is the null sender
	fullName   string
	notify     []smtp.DSNNotify
	ret        smtp.DSNReturn
	envid      string
	recipients []string
}

// Options of sendmail by what follows the letter. The rest of the alphabet takes nothing.
const (
	takesValue  = "ABCFLNORVXefhopr" // in the same argument, or in the next
	mayHaveRest = "bdq"              // in the same argument only
	takesNone   = "cGIimnstUvx"
)

// Parse reads options, as glibc's getopt(3) does: letters can share an argument, options
// may stand after recipients, and -- ends them.
func Parse(args []string) (Options, error) {
	var o Options
	for len(args) > 0 {
		arg, rest := args[0], args[1:]
		args = rest
		switch {
		case arg == "--help":
			return Options{Mode: ModeHelp}, nil
		case arg == "--":
			o.recipients = append(o.recipients, rest...)
			return o, nil
		case len(arg) < 2 || arg[0] != '-':
			o.recipients = append(o.recipients, arg)
			continue
		}
		used, err := o.cluster(arg[1:], rest)
		if err != nil {
			return o, err
		}
		args = rest[used:]
	}
	return o, nil
}

// cluster reads the letters of one argument and says how many of those after it were values.
func (o *Options) cluster(letters string, next []string) (used int, err error) {
	for ; letters != ""; letters = letters[1:] {
		letter, rest := letters[0], letters[1:]
		switch {
		case strings.IndexByte(takesValue, letter) >= 0:
			if rest != "" {
				return 0, o.set(letter, rest)
			}
			if len(next) == 0 {
				return 0, fmt.Errorf("option -%c needs a value", letter)
			}
			return 1, o.set(letter, next[0])
		case strings.IndexByte(mayHaveRest, letter) >= 0:
			return 0, o.set(letter, rest)
		case strings.IndexByte(takesNone, letter) >= 0:
			if err := o.set(letter, ""); err != nil {
				return 0, err
			}
		default:
			return 0, hinted{fmt.Errorf("unknown option -%c", letter), "see: sendmail --help"}
		}
	}
	return 0, nil
}

func (o *Options) set(letter byte, value string) error {
	switch letter {
	case 'b':
		return o.setMode(value)
	case 'q':
		return o.setFlush(value)
	case 'I':
		o.Mode = ModeAliases
	case 't':
		o.fromHeader = true
	case 'i':
		o.ignoreDots = true
	case 'o':
		o.ignoreDots = o.ignoreDots || value == "i"
	case 'O':
		name, setting, _ := strings.Cut(value, "=")
		o.ignoreDots = o.ignoreDots || strings.EqualFold(name, "IgnoreDots") && !strings.EqualFold(setting, "false")
	case 'f', 'r':
		o.sender, o.senderSet = strings.TrimSuffix(strings.TrimPrefix(value, "<"), ">"), true
	case 'F':
		o.fullName = value
	case 'C':
		o.Config = value
	case 'N':
		return o.setNotify(value)
	case 'R':
		return o.setReturn(value)
	case 'V':
		return o.setEnvID(value)
	}
	return nil
}

// setFlush reads -q: with a time it is for a daemon, and with a letter for a part of the queue.
func (o *Options) setFlush(value string) error {
	switch {
	case value == "":
		o.Mode = ModeFlush
		return nil
	case strings.ContainsRune("!GILQRS", rune(value[0])):
		return hinted{fmt.Errorf("option -q%s is not supported", value),
			"to try a part of the queue now: mta queue retry ID, --domain or --sender"}
	}
	return hinted{fmt.Errorf("option -q%s is for a daemon", value), "the relay runs by: mta serve"}
}

func (o *Options) setMode(value string) error {
	switch value {
	case "m", "":
		o.Mode = ModeSend
	case "s":
		o.Mode = ModeSMTP
	case "p":
		o.Mode = ModeList
	case "i":
		o.Mode = ModeAliases
	case "d", "D":
		return hinted{errors.New("option -bd: sendmail does not run as a daemon here"), "the relay runs by: mta serve"}
	default:
		return fmt.Errorf("option -b%s is not supported", value)
	}
	return nil
}

// setNotify reads -N (RFC 3461, 4.1).
func (o *Options) setNotify(value string) error {
	known := []smtp.DSNNotify{smtp.DSNNotifyNever, smtp.DSNNotifySuccess, smtp.DSNNotifyFailure, smtp.DSNNotifyDelayed}
	o.notify = nil
	for word := range strings.SplitSeq(value, ",") {
		n := smtp.DSNNotify(strings.ToUpper(word))
		if !slices.Contains(known, n) || slices.Contains(o.notify, n) {
			return fmt.Errorf("option -N %s: want never, or some of success,failure,delay", value)
		}
		o.notify = append(o.notify, n)
	}
	if len(o.notify) > 1 && slices.Contains(o.notify, smtp.DSNNotifyNever) {
		return fmt.Errorf("option -N %s: never goes with nothing else", value)
	}
	return nil
}

// setReturn reads -R (RFC 3461, 4.3).
func (o *Options) setReturn(value string) error {
	o.ret = smtp.DSNReturn(strings.ToUpper(value))
	if o.ret != smtp.DSNReturnFull && o.ret != smtp.DSNReturnHeaders {
		return fmt.Errorf("option -R %s: want full or hdrs", value)
	}
	return nil
}

// setEnvID reads -V (RFC 3461, 4.4).
func (o *Options) setEnvID(value string) error {
	if value == "" || len(value) > 100 || strings.IndexFunc(value, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) >= 0 {
		return fmt.Errorf("option -V %q: want 1 to 100 printable ASCII characters without spaces", value)
	}
	o.envid = value
	return nil
}

// envelopeSender is who gets the reports.
func (o *Options) envelopeSender(l *Local) (envelope.Address, error) {
	if o.senderSet && o.sender == "" {
		return "", nil
	}
	from := l.User
	if o.senderSet {
		from = o.sender
	}
	sender, err := l.qualify(from)
	if err != nil {
		return "", exitf(ExUsage, "sender: %w", err)
	}
	return sender, nil
}

// envelopeRecipients are the recipients of the command line and with -t those of the message,
// each once.
func (o *Options) envelopeRecipients(m *message, l *Local) ([]envelope.Address, error) {
	var all []envelope.Address
	add := func(code int, s string) error {
		a, err := l.qualify(s)
		if err != nil {
			return exitf(code, "recipient: %w", err)
		}
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
		return nil
	}
	for _, arg := range o.recipients {
		specs := addressSpecs(arg)
		if len(specs) == 0 {
			return nil, exitf(ExUsage, "recipient: %q has no address", arg)
		}
		for _, s := range specs {
			if err := add(ExUsage, s); err != nil {
				return nil, err
			}
		}
	}
	if o.fromHeader {
		for _, s := range m.recipients() {
			if err := add(ExDataErr, s); err != nil {
				return nil, err
			}
		}
	}
	if len(all) == 0 {
		return nil, exitf(ExDataErr, "nobody to send to: the message has no addresses in To, Cc or Bcc")
	}
	return all, nil
}

// author is what From says when the message has none: the sender, or for the null sender the
// caller.
func (o *Options) author(sender envelope.Address, l *Local, name string) (string, error) {
	if sender.Null() {
		var err error
		if sender, err = l.qualify(l.User); err != nil {
			return "", exitf(ExOSErr, "author: %w", err)
		}
	}
	if o.fullName != "" {
		name = o.fullName
	}
	return (&mail.Address{Name: name, Address: string(sender)}).String(), nil
}
