package fsm

import "time"

// ledOf returns how much of the time between two entries was led. left is what the first claim to end has left. A new
// leader had not heard of the one before for silence, which is 0 if it does not know, and -1 if there is no new leader.
func ledOf(gap, left, silence time.Duration) time.Duration {
	certain := silence < 0 && gap <= left+time.Second
	switch {
	case silence == 0:
		gap = 0
	case silence > 0:
		gap -= silence
	}
	switch {
	case certain:
	case left > time.Second:
		gap = min(gap, left/2)
	default:
		gap = min(gap, left)
	}
	return max(0, gap)
}
