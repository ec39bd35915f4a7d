package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// tmux is a terminal that a test looks at.
type tmux struct {
	t      *testing.T
	socket string
}

// inTmux runs a command in a terminal of a size, until the test's end.
func inTmux(t *testing.T, width, height int, argv ...string) *tmux {
	t.Helper()
	x := &tmux{t, scratch(t) + "/tmux"}
	args := []string{"new-session", "-d", "-s", "test", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	x.run(slices.Concat([]string{"start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"}, args, argv)...)
	t.Cleanup(func() { _ = x.command("kill-server").Run() })
	return x
}

func (x *tmux) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	return cmd
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := x.command(args...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// press types keys, by tmux's names.
func (x *tmux) press(keys ...string) {
	x.t.Helper()
	x.run(append([]string{"send-keys", "-t", "test"}, keys...)...)
}

// shows waits until the screen has all texts, and returns it.
func (x *tmux) shows(texts ...string) (screen string) {
	x.t.Helper()
	eventually(x.t, patience, func() error {
		screen = x.run("capture-pane", "-p", "-t", "test")
		for _, want := range texts {
			if !strings.Contains(screen, want) {
				return fmt.Errorf("the screen lacks %q:\n%s", want, screen)
			}
		}
		return nil
	})
	return screen
}

// hostileHost answers RCPT with a line that would drive a terminal.
func hostileHost(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprint(c, "220 mx.bad.example\r\n")
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); verb {
					case "RCPT":
						fmt.Fprint(c, "450 4.2.1 \x1b]2;owned\x07\x1b[2J\u009b31mred\u202eretal yrt\r\n")
					case "QUIT":
						fmt.Fprint(c, "221 bye\r\n")
						return
					default:
						fmt.Fprint(c, "250 ok\r\n")
					}
				}
			}()
		}
	}()
}

// TestTopUnderTmux: a real terminal shows a running relay and steers it, through the relay's absence and a change of size,
// and obeys no stranger. In the locale C it shows what is not ASCII, as the curves.
func TestTopUnderTmux(t *testing.T) {
	parallel(t)
	need(t, "tmux")
	const host = "127.81.0.2"
	port := commonPort(t, host)
	hostileHost(t, net.JoinHostPort(host, port))
	dns, _ := nsd(t, "bad MX 10 mx.bad\nmx.bad A "+host+"\n")
	r := newRelay(t, dns, port, "")
	r.start(t)
	if err := smtp.SendMail(r.addr, nil, "a@client.example", []string{"user@bad.example"}, []byte("Subject: hello\r\n\r\nhello\r\n")); err != nil {
		t.Fatal(err)
	}
	code := scratch(t) + "/code"
	x := inTmux(t, 80, 24, "sh", "-c", `LC_ALL=C "$@"; echo $? >"$0"`, code, binary, "top", "--config", r.config, "--every", "200ms")
	if screen := x.shows("[1 sites]", "mx.bad.example", "owned", `\u202eretal yrt`, "▁"); strings.Contains(screen, "no history") {
		t.Errorf("the screen lacks its history:\n%s", screen)
	}
	x.press("e")
	x.shows("domain      bad.example", "q:back")
	x.press("q", "t")
	x.shows("conversations with mx.bad.example", "RCPT TO:<user@bad.example>", "450 4.2.1")
	x.press("q", "s")
	x.shows("for how long: 30m_")
	x.press("Enter", "t", "e", "s", "t", "Enter")
	x.shows("suspend site mx.bad.example for 30m?")
	x.press("y")
	x.shows("suspended for", "more: test")
	x.run("resize-window", "-t", "test", "-x", "60", "-y", "15")
	if screen := x.shows("mx.bad.example", "suspended"); strings.Count(screen, "\n") != 15 {
		t.Errorf("on 15 lines the screen is\n%s", screen)
	}
	r.stop(patience)
	x.shows("NO RELAY", "old. connecting to the relay", "mx.bad.example")
	r.start(t)
	eventually(t, patience, func() error {
		if screen := x.shows("mta top"); strings.Contains(screen, "NO RELAY") {
			return fmt.Errorf("the relay is back:\n%s", screen)
		}
		return nil
	})
	x.press("6")
	x.shows("[6 connections]")
	if title := strings.TrimSpace(x.run("display-message", "-p", "-t", "test", "#{pane_title}")); strings.Contains(title, "owned") {
		t.Errorf("a stranger has set the title: %s", title)
	}
	x.press("q")
	eventually(t, patience, func() error {
		if text, err := os.ReadFile(code); err != nil || string(text) != "0\n" {
			return fmt.Errorf("the exit code is %q, %v", text, err)
		}
		return nil
	})
}
