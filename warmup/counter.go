package warmup

// guardMinutes are the buckets of the sliding hour. 61, the one in progress and the 60 before it,
// cover any 60 minutes that end now; one more, because a token is counted in the minute in which
// a node got it and may be used in the next.
const guardMinutes = 62

// Counter counts what was authorised. Its windows are opened by its owner.
type Counter struct {
	Hour, Day int64 // in the hour and in the day in progress
	Sliding   int64 // in all of minutes

	minute  int64 // the bucket in progress, counted from the warm-up's begin
	minutes [guardMinutes]int64
}

// roll opens a minute; it can only go forward.
func (c *Counter) roll(minute int64) {
	if minute-c.minute >= guardMinutes {
		c.minutes, c.Sliding, c.minute = [guardMinutes]int64{}, 0, minute
		return
	}
	for c.minute < minute {
		c.minute++
		b := &c.minutes[c.minute%guardMinutes]
		c.Sliding -= *b
		*b = 0
	}
}

func (c *Counter) add(n int64) {
	c.Hour += n
	c.Day += n
	c.Sliding += n
	c.minutes[c.minute%guardMinutes] += n
}

// takeBack undoes an add of the same hour.
func (c *Counter) takeBack(n int64) {
	c.Hour = max(0, c.Hour-n)
	c.Day = max(0, c.Day-n)
}

// forget takes what never was sent out of the minute in which it was authorised. An earlier minute
// than that is right as well, for it leaves the sliding hour earlier.
func (c *Counter) forget(n, minute int64) {
	if minute <= c.minute-guardMinutes || minute > c.minute {
		return
	}
	b := &c.minutes[minute%guardMinutes]
	n = min(n, *b)
	*b -= n
	c.Sliding -= n
}
