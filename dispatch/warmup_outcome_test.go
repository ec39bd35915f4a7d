package dispatch

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
	"example.org/mta/warmup"
)

const nothing = warmup.Outcome(255)

func replied(command, line string) reply.Reply {
	r := reply.Parse(line)
	r.Command = command
	return r
}

func outcomeOf(r reply.Reply, attempts int, last reply.Reply) warmup.Outcome {
	j := judge{}
	if x, ok := j.outcome(&r, attempts, &last); ok {
		return x
	}
	return nothing
}

func TestWarmupOutcome(t *testing.T) {
	const (
		full     = "452 4.2.2 mailbox full"
		grey     = "450 4.7.1 Greylisted, come again"
		silent   = "451 4.7.1 try again later"
		rate     = "451 4.7.1 rate limit exceeded"
		crowded  = "421 too many connections"
		overload = "451 4.3.2 overload"
	)
	for _, x := range []struct {
		reply    string
		attempts int
		last     string
		want     warmup.Outcome
	}{
		{"250 2.0.0 ok", 0, "", warmup.Delivered},
		{"250 2.0.0 ok", 3, rate, warmup.Delivered},
		{"550 5.1.1 no such user", 0, "", warmup.HardBounce},
		{"550 No", 0, "", warmup.HardBounce},
		{"550 5.1.1 see https://www.spamhaus.org/query/ip/192.0.2.5", 0, "", warmup.PolicyRefusal},
		{"554 IP address is blacklisted", 0, "", warmup.PolicyRefusal},
		{"550 5.7.1 blocked, see https://x", 0, "", warmup.PolicyRefusal},
		{"554 5.7.1 greylisted until you pay", 0, "", warmup.NotAboutUs},
		{"552 5.2.2 full", 0, "", warmup.NotAboutUs},
		{"552 5.3.4 too large", 0, "", warmup.NotAboutUs},
		{full, 0, "", warmup.NotAboutUs},
		{full, 5, full, warmup.NotAboutUs},
		{"421 4.7.28 unusual rate", 0, "", warmup.PolicyRefusal},

		{grey, 0, "", nothing}, {grey, 1, grey, nothing}, {grey, 2, grey, nothing},
		{silent, 0, "", nothing}, {silent, 1, silent, warmup.Deferred}, {silent, 2, silent, nothing},
		{overload, 0, "", nothing}, {overload, 1, overload, nothing},
		{"452 4.5.3 too many recipients", 0, "", nothing},
		{crowded, 0, "", warmup.Deferred}, {crowded, 1, crowded, nothing}, {crowded, 1, full, warmup.Deferred}, {crowded, 2, full, nothing},
		{rate, 0, "", warmup.PolicyRefusal}, {rate, 1, rate, warmup.RefusedAgain}, {rate, 1, grey, warmup.PolicyRefusal}, {rate, 2, grey, warmup.RefusedAgain},
	} {
		if got := outcomeOf(replied("RCPT", x.reply), x.attempts, replied("RCPT", x.last)); got != x.want {
			t.Errorf("%q after %d attempts, the last %q: %d, want %d", x.reply, x.attempts, x.last, got, x.want)
		}
	}
	if got := outcomeOf(reply.Local(451, reply.Enhanced{4, 4, 2}, "RCPT", "rate limit"), 0, reply.Reply{}); got != nothing {
		t.Errorf("what this relay says itself: %d", got)
	}
}

// TestEachBlockPauses: twenty of any provider's replies to a blocked address pause its mail, whether
// they answer a greeting or a recipient.
func TestEachBlockPauses(t *testing.T) {
	f, err := os.Open("../bounce/testdata/replies.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blocks := 0
	for in := bufio.NewScanner(f); in.Scan(); {
		field := strings.Split(in.Text(), "\t")
		if field[0] != bounce.SpamBlock.String() {
			continue
		}
		blocks++
		r := replied(field[2], strings.ReplaceAll(field[4], " / ", "\n"))
		p, s := trialPlan(), &warmup.State{}
		*s = *warmup.NewState(p, 0)
		v := s.Provider(p, field[1])
		for range 20 {
			var x warmup.Outcomes
			if field[2] == "greeting" {
				j := judge{}
				outcome, _ := j.refused(&r)
				x.Add(outcome)
			} else {
				x.Add(outcomeOf(r, 0, reply.Reply{}))
			}
			s.Report(p, v, x)
		}
		if !s.Providers[v].Blocked() {
			t.Errorf("%s is not paused after 20 times %s", field[1], r)
		}
		if s.Providers[v].Today.HardBounces > 0 {
			t.Errorf("%s: %s is a bounce of an address", field[1], r)
		}
	}
	if blocks < 30 {
		t.Errorf("only %d blocks in testdata", blocks)
	}
}

func trialPlan() *warmup.Plan {
	p := warmup.DefaultPlan()
	for daily := int64(4000); daily <= 32_000; daily *= 2 {
		p.Stages = append(p.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: daily / 8, Daily: daily}})
	}
	return &p
}

// trial is mail with a warm-up on a clock of its own: what each recipient's attempts are answered, by
// its index.
type trial struct {
	name    string
	answers func(i int, r *rand.Rand) (attempts []string)
	tiny    string // what one message a day to a small provider is answered
	days    int
	stage   int // in the end, at least, from 1
	most    int // in the end, at most
}

const ok = "250 2.0.0 ok"

// TestStagesThroughWhatIsNotAboutUs: greylisting, full mailboxes and a single bounce hold no stage; unknown
// users and blocks do.
func TestStagesThroughWhatIsNotAboutUs(t *testing.T) {
	share := func(part float64, bad ...string) func(int, *rand.Rand) []string {
		return func(_ int, r *rand.Rand) []string {
			if r.Float64() < part {
				return bad
			}
			return []string{ok}
		}
	}
	full := []string{"452 4.2.2 full"}
	for range 4 {
		full = append(full, full...)
	}
	for _, x := range []trial{
		{"all good", share(0, ok), ok, 3, 4, 4},
		{"30 % greylisted by the word", share(.3, "450 4.7.1 Greylisted", ok), ok, 3, 4, 4},
		{"30 % greylisted without a word", share(.3, "451 4.7.1 try again later", ok), ok, 3, 4, 4},
		{"30 % greylisted without a status", share(.3, "450 come again", ok), ok, 3, 4, 4},
		{"0.33 % full mailboxes, for days", share(.0033, full...), ok, 3, 4, 4},
		{"4 % full mailboxes, for days", share(.04, full...), ok, 3, 4, 4},
		{"4 % full for good", share(.04, "552 5.2.2 full"), ok, 3, 4, 4},
		{"one bounce a day at a small provider", share(0, ok), "550 5.1.1 no such user", 3, 4, 4},
		{"10 % unknown users", share(.1, "550 5.1.1 no such user"), ok, 3, 1, 1},
		{"a block by words alone", share(.9, "554 IP address is blacklisted"), ok, 3, 1, 1},
		{"deferred for volume", share(.6, "451 4.7.1 rate limit exceeded", "451 4.7.1 rate limit exceeded", ok), ok, 3, 1, 1},
	} {
		stage, first := x.run()
		if stage < x.stage || stage > x.most {
			t.Errorf("%s: stage %d after %d days, want %d", x.name, stage, x.days, x.stage)
		}
		t.Logf("%-40s stage %d; %d of 500 in the first hour", x.name, stage, first)
		if bad := x.stage == 1; bad && first > 350 || !bad && first < 450 {
			t.Errorf("%s: %d of 500 left in the first hour", x.name, first)
		}
	}
}

// run sends as much as the plan takes, each five seconds, with retries an hour apart, and gives the stage
// in the end and what left in the first hour.
func (x *trial) run() (stage int, firstHour int64) {
	const minute = 60_000
	type retry struct {
		due      warmup.Instant
		provider int
		attempts int
		answers  []string
	}
	r, p := rand.New(rand.NewPCG(1, 2)), trialPlan()
	s := warmup.NewState(p, 0)
	google, tiny := s.Provider(p, "google"), s.Provider(p, "tiny")
	var retries []retry
	attempt := func(now warmup.Instant, w retry) {
		answer := w.answers[0]
		var last reply.Reply
		if w.attempts > 0 { // trials answer alike while they defer
			last = replied("RCPT", answer)
		}
		var o warmup.Outcomes
		if outcome := outcomeOf(replied("RCPT", answer), w.attempts, last); outcome != nothing {
			o.Add(outcome)
		}
		s.Report(p, w.provider, o)
		if answer[0] == '4' && len(w.answers) > 1 {
			retries = append(retries, retry{now + 60*minute, w.provider, w.attempts + 1, w.answers[1:]})
		}
	}
	sent := 0
	for now := warmup.Instant(0); now < warmup.Instant(x.days)*24*60*minute+minute; now += 5000 {
		s.Advance(p, now)
		s.Offer(p, google, 100)
		for len(retries) > 0 && retries[0].due <= now && s.Grant(p, retries[0].provider, 1, 1) > 0 {
			w := retries[0]
			retries = retries[1:]
			attempt(now, w)
		}
		if now%(24*60*minute) == 20*minute && s.Grant(p, tiny, 1, 1) > 0 {
			attempt(now, retry{provider: tiny, answers: []string{x.tiny}})
		}
		for n := s.Grant(p, google, 100, 0); n > 0; n-- {
			sent++
			attempt(now, retry{provider: google, answers: x.answers(sent, r)})
		}
		if now == 60*minute-5000 {
			firstHour = s.Total.Hour
		}
	}
	return s.Stage + 1, firstHour
}
