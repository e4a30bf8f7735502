package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

const (
	recipeLease = 30 * time.Second
	recipePause = 10 * time.Millisecond
)

// recipe is what most programs do by hand: SET NX PX with a fresh value takes the lock, a script that
// compares and deletes gives it back, and whoever is refused tries again after a pause.
var recipe = contestant{
	name:     "plain recipe",
	settings: "`SET key random NX PX 30000`, compare-and-delete by `EVALSHA`, over valkey-go; refused: again after 10 ms. No renewal",
	store:    inValkey,
	join: func(p place) (member, error) {
		conn, closeConn, err := p.valkeyConn()
		if err != nil {
			return member{}, err
		}
		return member{
			locker: func(key string) (locker, error) { return &byRecipe{conn: conn, key: key}, nil },
			close:  closeConn,
		}, nil
	},
}

var recipeUnlock = valkey.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

type byRecipe struct {
	conn       valkey.Client
	key, value string
}

func (r *byRecipe) Lock(ctx context.Context) error {
	r.value = strconv.FormatUint(rand.Uint64(), 36)
	for {
		err := r.conn.Do(context.Background(), r.conn.B().Set().Key(r.key).Value(r.value).Nx().Px(recipeLease).Build()).Error()
		if !valkey.IsValkeyNil(err) {
			return err
		}
		if !sleep(ctx, recipePause) {
			return ctx.Err()
		}
	}
}

func (r *byRecipe) Unlock(context.Context) error {
	n, err := recipeUnlock.Exec(context.Background(), r.conn, []string{r.key}, []string{r.value}).AsInt64()
	if err == nil && n != 1 {
		return errors.New("the lock was not ours any more")
	}
	return err
}

// sleep is false when ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
