// A Minecraft Bedrock server of the npm package bedrock-protocol, and players of
// the same package who log in to it, both on RakNet written in JavaScript. It
// says "listening PORT" once it answers at the port that is its argument, and
// takes "join NAME" on its standard input.
'use strict'
const Module = require('node:module')
const readline = require('node:readline')

// The package loads its compiled RakNet before it reads which one it should
// use, and that one is built by an install script that doesn't run here.
const load = Module._load
Module._load = (name, ...rest) => name === 'raknet-native' ? {} : load(name, ...rest)
const bedrock = require('bedrock-protocol')

const host = '127.0.0.1'
const port = Number(process.argv[2])
const version = '1.21.60'
const raknetBackend = 'jsp-raknet'

const server = bedrock.createServer({
  host,
  port,
  version,
  raknetBackend,
  offline: true,
  maxPlayers: 5,
  motd: { motd: 'A dormouse', levelName: 'burrow' }
})
server.on('connect', (player) => player.on('login', () => console.log('joined', player.profile.name)))
console.log('listening', port)

function join (username) {
  const player = bedrock.createClient({ host, port, version, raknetBackend, username, offline: true, skipPing: true, conLog: console.error })
  player.on('error', (err) => console.error(err))
}

const commands = readline.createInterface({ input: process.stdin })
commands.on('line', (line) => {
  const [command, name] = line.split(' ')
  if (command === 'join') join(name)
})
commands.on('close', () => process.exit(0))
