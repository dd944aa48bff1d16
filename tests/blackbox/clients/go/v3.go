package main

import (
	"fmt"
	"net"
	"net/url"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

type client3 struct {
	mqtt.Client
	t        *test
	messages chan mqtt.Message
	lost     chan error
	present  bool
	conn     net.Conn
}

func wait(token mqtt.Token) {
	check(token.WaitTimeout(deadline), "no answer in time")
	must(token.Error())
}

func connect3(t *test, address, suffix string, version uint, options ...func(*mqtt.ClientOptions)) *client3 {
	c := &client3{t: t, messages: make(chan mqtt.Message, 10000), lost: make(chan error, 1)}
	o := mqtt.NewClientOptions().AddBroker("tcp://" + address).SetClientID(t.name + suffix).SetProtocolVersion(version)
	o.SetAutoReconnect(false).SetConnectRetry(false).SetOrderMatters(true)
	o.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { c.messages <- m })
	o.SetConnectionLostHandler(func(_ mqtt.Client, err error) { c.lost <- err })
	o.SetCustomOpenConnectionFn(func(uri *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
		conn, err := net.DialTimeout("tcp", uri.Host, deadline)
		c.conn = conn
		return conn, err
	})
	for _, option := range options {
		option(o)
	}
	c.Client = mqtt.NewClient(o)
	token := c.Connect()
	wait(token)
	c.present = token.(*mqtt.ConnectToken).SessionPresent()
	t.after(func() { c.Disconnect(0) })
	return c
}

func (c *client3) subscribe(qos byte, filters ...string) {
	wanted := map[string]byte{}
	for _, filter := range filters {
		wanted[filter] = qos
	}
	wait(c.SubscribeMultiple(wanted, nil))
}

func (c *client3) publish(topic string, qos byte, retain bool, payload string) {
	wait(c.Publish(topic, qos, retain, payload))
}

func (c *client3) message() mqtt.Message { return receive(c.messages, "message") }

func (c *client3) until(payload string) (seen []string) {
	for {
		got := string(c.message().Payload())
		if got == payload {
			return seen
		}
		seen = append(seen, got)
	}
}

func clean(is bool) func(*mqtt.ClientOptions) {
	return func(o *mqtt.ClientOptions) { o.SetCleanSession(is) }
}

func v3Features(address string) (all []feature) {
	for text, version := range map[string]uint{"3.1": 3, "3.1.1": 4} {
		add := func(name string, run func(*test)) { all = append(all, feature{name + ", " + text, run}) }

		add("connect", func(t *test) { check(!connect3(t, address, "", version).present, "session present") })

		for qos := byte(0); qos < 3; qos++ {
			add(fmt.Sprintf("QoS %d both ways", qos), func(t *test) {
				c := connect3(t, address, "", version)
				c.subscribe(qos, t.name)
				c.publish(t.name, qos, false, "x")
				got := c.message()
				check(string(got.Payload()) == "x" && got.Qos() == qos && !got.Retained() && got.Topic() == t.name, "%v", got)
			})
			add(fmt.Sprintf("order of 300 messages at QoS %d", qos), func(t *test) {
				c, p := connect3(t, address, "s", version), connect3(t, address, "p", version)
				c.subscribe(qos, t.name)
				var last mqtt.Token
				for n := range 300 {
					last = p.Publish(t.name, qos, false, fmt.Sprint(n))
				}
				wait(last)
				for n := range 300 {
					got := string(c.message().Payload())
					check(got == fmt.Sprint(n), "%s in place of %d", got, n)
				}
			})
		}

		add("session, queue of an offline session", func(t *test) {
			c := connect3(t, address, "", version, clean(false))
			c.subscribe(1, t.name)
			c.Disconnect(100)
			p := connect3(t, address, "p", version)
			for n := range 3 {
				p.publish(t.name, 1, false, fmt.Sprint(n))
			}
			c = connect3(t, address, "", version, clean(false))
			check(c.present == (version == 4), "session present: %v", c.present)
			for n := range 3 {
				check(string(c.message().Payload()) == fmt.Sprint(n), "order of the queue")
			}
			c.Disconnect(100)
			check(!connect3(t, address, "", version, clean(true)).present, "session present after a clean start")
		})

		add("retained messages", func(t *test) {
			c := connect3(t, address, "", version)
			c.publish(t.name+"/a", 1, true, "kept")
			c.subscribe(1, t.name+"/+")
			got := c.message()
			check(got.Retained() && string(got.Payload()) == "kept", "%v", got)
			c.publish(t.name+"/a", 1, true, "")
			late := connect3(t, address, "late", version)
			late.subscribe(1, t.name+"/#")
			c.publish(t.name+"/b", 1, false, "end")
			check(len(late.until("end")) == 0, "still retained")
		})

		add("will", func(t *test) {
			w := connect3(t, address, "w", version)
			w.subscribe(1, t.name)
			c := connect3(t, address, "", version, func(o *mqtt.ClientOptions) { o.SetWill(t.name, "bye", 1, false) })
			c.conn.Close()
			check(string(w.message().Payload()) == "bye", "another message")
		})

		add("keep-alive by PINGREQ", func(t *test) {
			c := connect3(t, address, "", version, func(o *mqtt.ClientOptions) { o.SetKeepAlive(5 * time.Second) })
			select {
			case err := <-c.lost:
				panic(err)
			case <-time.After(9 * time.Second):
			}
		})

		add("unsubscribe", func(t *test) {
			c := connect3(t, address, "", version)
			c.subscribe(1, t.name, t.name+"/end")
			wait(c.Unsubscribe(t.name))
			c.publish(t.name, 1, false, "x")
			c.publish(t.name+"/end", 1, false, "end")
			check(len(c.until("end")) == 0, "still subscribed")
		})

		add("takeover", func(t *test) {
			c := connect3(t, address, "", version)
			connect3(t, address, "", version)
			receive(c.lost, "end of the connection")
		})

		add("shared subscriptions", func(t *test) {
			one, two := connect3(t, address, "1", version), connect3(t, address, "2", version)
			p := connect3(t, address, "p", version)
			for _, member := range []*client3{one, two} {
				member.subscribe(1, "$share/g/"+t.name)
			}
			for n := range 20 {
				p.publish(t.name, 1, false, fmt.Sprint(n))
			}
			seen := map[string]bool{}
			for len(seen) < 20 {
				var got mqtt.Message
				select {
				case got = <-one.messages:
				case got = <-two.messages:
				case <-time.After(deadline):
					panic(fmt.Sprintf("%d of 20 messages", len(seen)))
				}
				check(!seen[string(got.Payload())], "twice: %s", got.Payload())
				seen[string(got.Payload())] = true
			}
		})
	}
	return all
}
