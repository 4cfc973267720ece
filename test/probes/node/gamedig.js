// A second opinion on a game: asks it as its arguments KIND and PORT say, with
// the npm package gamedig, and prints {"name", "players", "bots", "capacity"}.
'use strict'
const { GameDig } = require('gamedig')

const [kind, port] = process.argv.slice(2)
GameDig.query({ type: 'protocol-' + kind, host: '127.0.0.1', port: Number(port), givenPortOnly: true, requestRules: false })
  .then((state) => console.log(JSON.stringify({
    name: state.name,
    players: state.numplayers,
    bots: state.bots.length,
    capacity: state.maxplayers
  })))
  .catch((err) => {
    console.error(err)
    process.exit(1)
  })
