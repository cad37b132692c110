package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// linkFault makes a fault of links. Such faults may overlap each other and all others.
func linkFault(name string, of func(c *cluster, from, to *host) effect) fault {
	return fault{name: name, strike: func(_ context.Context, c *cluster) (func() error, error) {
		lift := c.lan.impose(func(from, to *host) effect { return of(c, from, to) })
		return func() error { lift(); return nil }, nil
	}}
}

// cut separates a member from the others, and sometimes from the clients.
func cut(random *rand.Rand, n int) fault {
	if random.IntN(2) == 0 {
		i, name := hit(random, n, "%s without the other servers and clients")
		return linkFault(name, func(c *cluster, from, to *host) effect {
			self := c.lan.hosts[i]
			return effect{lost: from == self || to == self}
		})
	}
	i, name := hit(random, n, "%s without the other servers")
	return linkFault(name, func(c *cluster, from, to *host) effect {
		self := c.lan.hosts[i]
		return effect{lost: from != c.clients && to != c.clients && (from == self || to == self)}
	})
}

// cutPair separates two members, which both reach the others.
func cutPair(random *rand.Rand, n int) fault {
	i := random.IntN(n)
	j := (i + 1 + random.IntN(n-1)) % n
	return linkFault(fmt.Sprintf("s%d and s%d without each other", i+1, j+1), func(c *cluster, from, to *host) effect {
		a, b := c.lan.hosts[i], c.lan.hosts[j]
		return effect{lost: from == a && to == b || from == b && to == a}
	})
}

// cutOneWay loses the frames between a member and the other ones in one direction.
func cutOneWay(random *rand.Rand, n int) fault {
	if random.IntN(2) == 0 {
		i, name := hit(random, n, "%s sends nothing to the other servers")
		return linkFault(name, func(c *cluster, from, to *host) effect {
			return effect{lost: from == c.lan.hosts[i] && to != c.clients}
		})
	}
	i, name := hit(random, n, "%s gets nothing from the other servers")
	return linkFault(name, func(c *cluster, from, to *host) effect {
		return effect{lost: to == c.lan.hosts[i] && from != c.clients}
	})
}

// flap separates a member from all others again and again.
func flap(random *rand.Rand, n int) fault {
	period := time.Duration(30+random.IntN(500)) * time.Millisecond
	i, name := hit(random, n, "%s without network every other ")
	began := time.Now()
	return linkFault(name+period.String(), func(c *cluster, from, to *host) effect {
		self := c.lan.hosts[i]
		return effect{lost: (from == self || to == self) && time.Since(began)/period%2 == 0}
	})
}

// slow delays the frames of a member, and loses some.
func slow(random *rand.Rand, n int) fault {
	delay, share := time.Duration(5+random.IntN(150))*time.Millisecond, float64(random.IntN(3))/20
	i, name := hit(random, n, "frames of %s ")
	return linkFault(fmt.Sprintf("%sare late by %v, %.0f%% are lost", name, delay, share*100), func(c *cluster, from, to *host) effect {
		if self := c.lan.hosts[i]; from != self && to != self {
			return effect{}
		}
		return lossy(share, delay)
	})
}
