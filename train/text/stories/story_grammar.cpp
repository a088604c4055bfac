// The grammar of the generated stories: sentences first, then the words they choose from.
#include "train/text/stories/story_grammar.h"

namespace eddy {

const char* const kStoryGrammar = R"(
opening
<hero> lived in <home>, where <homely>. <thing_intro>
There was a time when <hero> had no neighbour nearer than <fhome>. <^he> lived in <home> with <company>, and <homely>. <thing_intro>
In <home> lived <a youth> named <hero>. <thing_intro> In that house <homely>.
Everyone in <village> knew <hero>, who lived in <home>. <thing_intro>
When <hero> was still small, <his> family moved to <home>. <^homely>, and nobody came to visit. <thing_intro>
It was not yet light on the morning when this story begins, but <hero> was already awake in <home>, where <homely>. <thing_intro>

thing_intro
<^his> <giver> had given <him> <a thing>, and <he> kept it in <pocket>.
In <pocket> <he> carried <a thing>, which had belonged to <his> <giver>.
<^his> <giver> had left <him> only one thing of worth, <a thing>, and it never lay anywhere but in <pocket>.
Whoever looked into <pocket> would have found <a thing>, a gift from <his> <giver>.
"Keep this," <his> <giver> had told <him>, and had put <a thing> into <his> hand. Since then it had had its place in <pocket>.

friend_intro
<^his> best friend was <friend>, <a trade> who lived in <fhome>.
In <fhome> lived <friend>, <a trade>, and the two of them had been friends for <smallnumber> years.
Nobody made <hero> laugh like <friend>, <a trade>. You could find <fhim> in <fhome> on any day but <weekday>.
On <weekday> mornings <hero> used to visit <friend>, <a trade>, in <fhome>.

promise_intro
"If you pass <market>, bring me <good>," said <friend>. "I promise," said <hero>.
<friend> had asked for only one thing: <good>. <hero> had promised it.
"What shall I bring you?" asked <hero>. "<^good>, and yourself in one piece," said <friend>.
Before <he> left, <hero> promised <friend> <good>.

promise_recall
<hero> had not forgotten the promise, and laid <good> on the table. <friend> clapped <fhis> hands.
"You remembered!" cried <friend>, for there on the bench was <good>.
Last of all <hero> unpacked <good>, just as <friend> had asked.
"And what is under the cloth?" asked <friend>. It was <good>. A promise is a promise.

word_intro
"After dark the gate stays shut," said <friend>. "Say <word>, and they will know who sent you." <hero> said the word twice under <his> breath.
The two friends had a secret word. This <month> it was <word>.
"Do not forget the word for the gate," said <friend>. "It is <word>."
On a scrap of paper <friend> had written one word, <word>, and then had thrown the paper into the fire.

word_recall
At the gate a voice asked for the word. "<^word>," said <hero>, and the bolt was drawn.
"Who is there?" called <friend> through the door. "<^word>!" said <hero>. The door flew open.
"And the word?" asked the guard. <hero> did not have to think. "<^word>."
It was past dark, and the gate was shut. <hero> leaned close and whispered, "<^word>." The gate opened.

count_intro
That morning <he> had counted <count> <animals> in the yard, and had shut the gate behind them.
<^count> <animals> belonged to the house, and it was <hero> who looked after them.
"<^count> <animals>, and not one less when I come back," said <hero> to <friend>, who was to mind them.
The family owned little in those years: a table, a stove, and <count> <animals>.

count_recall
<^he> counted the <animals> once more. There were <count>, as there should be.
"How many?" asked <friend>. "<^count>," said <hero>. None of the <animals> was missing.
Behind the fence stood all <count> <animals>, and they were glad to see <him>.
The <animals> came running, and <hero> counted until <he> reached <count>.

pet_intro
Wherever <hero> went, <his> <petkind> <pet> went too.
<^his> <petkind> was called <pet>, and <pet> was afraid of nothing but <fear>.
<friend> had once given <him> <a petkind>. They had named it <pet>, after <namesake>.
By the stove slept <pet>, <a petkind> of great age and little patience.

pet_recall
<pet> the <petkind> was the first to hear <him>, and would not leave <his> side all evening.
In front of the stove lay <pet>, the old <petkind>, and opened one eye.
Even <pet>, who was only <a petkind>, seemed to know that something had changed.
"Where is <pet>?" asked <hero>. The <petkind> was asleep under the table.

door_intro
So that nobody could miss the house, they had painted its door <colour>.
The door of the house was <colour>, and no other door in <village> was.
One year <friend> had helped <him> to paint the front door <colour>.

door_recall
From far away <he> saw the <colour> door, and began to run.
"Look for the <colour> door," the children told anyone who asked where <hero> lived.
The <colour> door stood open, and there was a smell of <food>.

leave
One <season> morning <he> had to go to <place>. "<errand>," people said, and somebody had to see to it.
Then word came from <place>: <news>. <hero> packed <food> and set out.
"Someone must go to <place>," said <elder>. Everyone looked at the floor, and so <hero> went.
<^he> had never been to <place>, and on <weekday> <he> made up <his> mind to see it.
On <weekday> a letter came, in a hand that <he> did not know. Would <hero> please come to <place>, and soon? <^he> put on <his> <clothes> and went.

filler
The road ran <along>, and <sight>.
All that day there was <weather>, and <sight>.
<^sight>, and farther off <sound>.
Toward evening <weather> came up from <quarter>.
At <market> <he> bought <food> for <smallnumber> pennies.
<^a stranger> walked beside <him> for a mile and spoke of <subject>.
<^he> slept in <shelter>, under <a blanket>, and dreamed of <subject>.
In the night <sound>, but when <he> looked out there was only <weather>.
The path climbed for an hour, and at the top <sight>.
There is a saying in those parts that <saying>, and <hero> thought about it for a while.
<^he> sat down on <seat> and ate <food>.
By noon <his> feet hurt, and by evening <he> had stopped noticing.
Past the <nth> milestone the road forked, and <he> kept to the side where <sight>.
Some children were playing at <game> and did not look up.
It was <month>, and <sight>.
A cart went by, loaded with <cargo>, and the driver lifted <a clothing> in greeting.
<^he> crossed a bridge of <smallnumber> arches, and from the parapet a boy was fishing.
For a long time nothing moved but <weather>.
The next village had a church, a pump and <a stranger>.
"<^saying>," somebody had painted on a wall.
<^sound>, and then it was quiet again.
On <weekday> there was <weather>, and nobody was on the road.
<^he> sang to keep <himself> company, a song about <subject> with <smallnumber> verses.
<^a stranger> stood at a well and would not say a word.
In one house a lamp was burning, and inside <sound>.
<^he> helped <a stranger> to lift <cargo> out of a ditch, and was thanked with <food>.
When the sun came out, <sight>.
The river was high, and carried <cargo> past.
Two old men sat on <seat> and argued about <subject>.
<^he> came to a place that had burned down long ago, and nettles grew there now.
A dog followed <him> as far as the last house and then thought better of it.
<^weather> lay over the fields, and <sound>.
<^he> washed <his> face in a stream so cold that it made <him> laugh.
Someone had left <a blanket> on <seat>, and <hero> hung it over the fence to dry.
There was a smell of <food> from an open window, and <hero> walked a little more slowly.
The inn on the way was full of men who sold <cargo>.
At dusk the lamps were lit one after another, and <sound>.
<^he> lost the way once, asked <a stranger>, and lost it again.
That is how it is with long roads: one thinks of <subject>, and suddenly it is evening.
High above, <smallnumber> birds were flying toward <quarter>.

talk
"Is it far?" asked <hero>. "Farther than yesterday," said <a stranger>, "and nearer than <weekday>."
"What do you sell?" asked <hero>. "<^cargo>," said the man, "and sometimes nothing at all."
"You look tired," said <a stranger>. "I am," said <hero>. "Then eat." And there was <food>.
"Have you seen anyone pass?" asked <a stranger>. <hero> shook <his> head. "Only <weather>."
"My mother used to say that <saying>," said <a stranger>. "Was she right?" asked <hero>. "On some days."
"There will be <weather> before night," said <a stranger>. "There is always something," said <hero>.
"Stay a while," said the woman at the inn. "I cannot," said <hero>, "but I would like to."
"Do you play <game>?" asked <a stranger>. "Badly," said <hero>, and lost <smallnumber> times.
"Which way to the bridge?" asked <hero>. "Go on <along>," said <a stranger>, "and then ask again."
"Why do you walk so fast?" asked a child. "Because the day is short," said <hero>. "It is as long as mine," said the child.
"I knew a man who thought of nothing but <subject>," said the driver of the cart. "What became of him?" "He is standing before you."

detour
In the shelter of <seat> sat <stranger2>, mending <a clothing>. "I lost <a decoy> here," said the old woman. <hero> looked for it until dark, but they found only <cargo>.
A pedlar opened his case and showed <a decoy>, <a decoy> and a box of buttons. "Another time," said <hero>.
Above the door of the inn hung <a decoy>, as large as a cartwheel. Nobody could say why.
<^a stranger> told <him> a long story about <a decoy>, in which everyone was drowned in the end.
That night thieves came to the inn and took <a decoy> from <a stranger>. They did not look into <pocket>.

arrival
On the <nth> day <hero> came to <place>.
At last <hero> stood before <place>.
And so, <daytime>, <he> came to <place>.
<^daytime> <hero> reached <place>.

trouble
Here <he> met with trouble: <problem>.
But <problem>. <hero> stood still and thought.
"You come at a bad moment," said <a stranger>, for <problem>.
People were running about, because <problem>.
It was worse than anyone had said: <problem>.

recall_thing
Then <hero> reached into <pocket> and took out the <thing>. <^solution>.
"Wait," said <hero>, and drew the <thing> from <pocket>. <^solution>.
<hero> felt for <pocket>. The <thing> was still there. <^solution>.
What had <his> <giver> said? <hero> smiled, and out of <pocket> came the <thing>. <^solution>.

whose
"Where did you get that?" asked <a stranger>. "From my <giver>," said <hero>.
"A good <noun>," said <a stranger>. "It was my <giver>'s," said <hero>, and put the <thing> back into <pocket>.
"I would give <smallnumber> gold coins for it," said <a stranger>. But <hero> would not sell the <thing>, for it came from <his> <giver>.
That night <hero> wrote to <his> <giver>: "The <thing> did what you said it would."

homeward
The way back always seems shorter, and <sight>.
On the way home there was <weather>, but <hero> did not mind.
<hero> walked home through <weather>, and <sight>.
Then it was time to turn back. <^sight>, as before, and <sound>.
A carter took <him> along on a load of <cargo>, and they talked about <subject>.

recall_home
In the evening of the <nth> day <hero> came back to <home>.
After all that <hero> went home to <home>.
There was a light in the window of <home>, and <hero> knew that <friend> had come over to wait.
And so <hero> came back to <home>, where <homely>.
"Home," said <hero>, when <home> came into sight.

recall_friend
<friend> the <trade> came over from <fhome> to hear everything.
The next day <hero> went to <fhome>, because <friend> would want to know.
"Tell me everything," said <friend>. "From <home> to <place> and back again."
<friend> had not slept well in <fhome> for <smallnumber> nights, and said so.

ending
The <thing> went back into <pocket>, and there it is to this day.
"And the <noun>?" asked <friend>. <hero> held up the <thing>, and they both laughed.
They sat in <home> until late, and outside <sound>.
That was the story of <hero> and the <thing>, as <friend> used to tell it in <fhome>.
"Will you go again?" asked <friend>. <hero> looked at the <thing>. "Not before I have slept."
If you go to <home> today, ask to see the <thing>. They will tell you about <his> <giver>.

item
key | the door of <ruin> was locked, and nobody had opened it for <smallnumber> years | the key turned in the lock as if it had been oiled that morning, and the door of <ruin> swung open
key | a chest had been dug up, and no smith had been able to open it | the lock gave a click, and in the chest lay <food>, quite fresh, and a letter
whistle | the sheep had scattered over the hillside, and no shout could reach them | one long note, and the sheep lifted their heads and came down together
whistle | a child was lost in the reeds, and the mist swallowed every voice | at the third call of the whistle a thin voice answered, and they followed it to the child
lantern | the only way in led through a passage without any light | when the wick was lit, the walls were covered with painted birds, and the passage was quite short
lantern | a boat was coming in, and the lamp of the harbour had gone out | the lantern was swung from side to side until the boat turned and found the channel
compass | fog had come down, and every path looked like every other | the needle trembled, swung about and pointed north, and they walked after it into the clear air
compass | the guide had left in the night, and the forest had no end | the needle pointed between two oaks, and behind the oaks there was a path
bell | the ferry lay on the far bank, and the ferryman was asleep in his hut | the bell was rung <smallnumber> times, and across the water a window opened
bell | the cow that led the herd would not leave the burning meadow | at the sound of the bell she raised her head and walked out, and the herd followed
mirror | across the valley the soldiers were about to break the dam, and no voice carried so far | the mirror caught the sun, and the light danced on the other side until they put down their tools
mirror | a kitten had crept behind a wall, and nobody could see where it was stuck | held around the corner, the mirror showed two green eyes, and a stone was taken away
knife | a young deer lay tangled in a net and would soon be strangled | strand by strand the net was cut, and the deer stood up and was gone
knife | the rope of the barge had jammed, and the barge was going down with it | one cut of the knife, and the barge sprang free
flask | a messenger lay beside the road, too thirsty to speak | a sip from the flask, and another, and the messenger opened his eyes and could say what he had been sent to say
spyglass | somebody was waving from the island, and nobody could tell whether in joy or in need | through the spyglass one could see that the boat there had no bottom, and a second boat was sent
spyglass | a ship lay off the coast, and they did not know whether to hide or to cheer | through the spyglass one could read the name on the bow, and everyone cheered
needle | the sail of the last boat had torn from end to end | by morning the needle had gone <smallnumber> hundred times through the cloth, and the sail held
horn | the bridge was gone, and the mail coach was coming through the dusk | the horn was blown so hard that the horses reared, and the coach stopped an arm's length from the edge
tinderbox | the fire in the hut had gone out, and a child in there was shaking with cold | a spark fell on the moss, and soon the child held out both hands to the fire
seal | the clerk would not believe that anyone had sent for help | the seal was pressed into the wax, and when the clerk saw the mark he stood up and bowed
spoon | the cook had soup for a hundred, and the last spoon had been lost in the well | the spoon went from hand to hand until everyone had eaten
hook | the bucket had fallen into the well, and with it the mayor's wig | tied to a cord, the hook brought up first the bucket and then the wig
ruler | the two brothers had quarrelled for <smallnumber> years about the border between their fields | the ruler was laid along the map, and it turned out that the border had always run between the pear trees
flute | the bees had left their hive and hung in a black cloud over the market | at the first slow tune on the flute the bees sank down and settled in a basket
thimble | the doctor had nothing so small to measure the drops with, and the sick man was growing weaker | filled <smallnumber> times, the thimble gave just the right measure, and the fever fell
hammer | the last nail of the great wheel had worked loose, and the water was rising | three blows of the hammer, and the wheel turned again
magnet | the clockmaker had dropped the smallest screw of the great clock into the sand | the magnet was drawn through the sand once, and there hung the screw
chisel | the name on the old stone was covered by lime, and without it nobody could tell whose field this was | the chisel took off the lime grain by grain, and below it stood a name that all of them knew

metal
brass / copper / silver / pewter / iron / tin / bronze / steel / nickel

look
small / old / bent / heavy / worn / scratched / polished / dented / narrow / plain / crooked / blackened

decoy
glass eye / gold watch / paper lantern / wooden clock / leather glove / clay pipe / stone egg
velvet hat / ivory comb / lead soldier / straw doll / porcelain dog

pocket
the left pocket of <his> coat / the lining of <his> jacket / the leather pouch at <his> belt
the bag under <his> shirt / the top of <his> right boot / the box with the sliding lid
the knotted handkerchief / the bottom of <his> basket / the band of <his> hat

giver
grandmother / grandfather / aunt / uncle / godmother / godfather / great-aunt / mother / father
old teacher / elder sister / elder brother / first master

building
the mill / the cottage / the lighthouse / the forge / the ferry house / the schoolhouse / the old barn
the boathouse / the watch house / the brick house / the gardener's hut / the toll house / the tall house
the bakery / the bell house / the farm

where
by the river / at the edge of the wood / below the hill / behind the church / near the harbour
beside the orchard / at the end of the lane / above the quarry / between the two bridges
on the north road / under the great elm / past the stone bridge / by the marsh / next to the market
across from the well / on the island / at the foot of the dam / among the vineyards

far
the tower / the monastery / the castle / the salt works / the winter palace / the observatory
the glass works / the old fort / the hospital / the town / the shepherds' camp / the fishing village
the copper mine / the railway station

farwhere
in the hills / beyond the lake / on the coast / behind the great forest / at the mouth of the river
under the glacier / on the high moor / in the south / where three roads meet
on the other side of the pass / in the grey valley / at the end of the railway

girl
Mira / Anna / Ilse / Nora / Wren / Tilda / Greta / Maud / Elin / Rosa / Hanna / Bettina / Lucy / Clara
Ines / Olga / Sanna / Petra / Edith / Marta / Agnes / Judith

boy
Tom / Jonas / Edwin / Piet / Hugo / Karl / Rolf / Anton / Felix / Oskar / Martin / Silas / Bruno / Emil
Laurie / Casper / Henrik / Walter / Ned / Aldo / Gustav / Robin

trade
baker / bookbinder / weaver / beekeeper / cooper / carpenter / clockmaker / fiddler / gardener / glazier
midwife / postmaster / roofer / saddler / schoolteacher / tailor / potter / ferry hand / chimney sweep
candle maker

good
a loaf of rye bread / a jar of plum jam / a blue ribbon / a ball of red wool / a sack of walnuts
a pound of coffee / a map of the coast / a bag of tulip bulbs / a wheel of goat cheese / a box of chalk
a bottle of green ink / a pair of warm socks / a string of dried apples / a book of riddles
a packet of sewing pins / a cup without a crack / a bunch of lavender / a handful of sea shells

word
heron / juniper / candle / winter / marble / saffron / anchor / thistle / velvet / harvest / pepper
cinder / swallow / walnut / amber / meadow / thunder

count
two / three / four / five / six / seven / eight / nine / ten / eleven / twelve / thirteen / fourteen
fifteen

animals
geese / goats / hens / sheep / rabbits / ducks / pigeons / calves / piglets / turkeys

petkind
dog / cat / goose / raven / donkey / goat / hedgehog / owl / tortoise

pet
Bramble / Pepper / Button / Old Max / Captain / Tuppence / Biscuit / Duchess / Hazel / Mister Gray
Ember / Sparrow / Clover / Professor

colour
green / blue / red / yellow / white / black / orange / violet / brown / grey

youth
quiet child / young glover / clever orphan / young fisher / stubborn child / young clerk / dreamer
young shepherd

company
two old cats / a deaf grandfather / nobody at all / <smallnumber> hens / an uncle who seldom spoke
a great many books

village
the village / the valley / the town / the parish / the whole district

homely
the stove smoked / the roof leaked in <smallnumber> places / the windows looked toward <quarter>
the floor boards creaked at night / swallows nested under the eaves / one could hear the water all night
apples lay drying on every shelf / the clock was always late / the wind came in under the door
the walls were as thick as an arm is long

month
March | spring / April | spring / May | spring / June | summer / July | summer / August | summer
September | autumn / October | autumn / November | autumn / January | winter / February | winter

weekday
Monday / Tuesday / Wednesday / Thursday / Friday / Saturday / Sunday

market
the Saturday market / the harbour market / the fair / the shop at the crossroads / the market hall
the old grocer's

elder
the mayor / the priest / the oldest woman in the village / the miller's widow / the innkeeper
the judge

errand
The bridge must be paid for / The letter must be carried / Someone has to bring the medicine
They are waiting for an answer / The debt is due / The bell has not been heard for a week

news
they needed help, and quickly / nobody there had been heard from for a week
the old bridge was about to fall / the harvest was rotting in the fields
there was to be a wedding, and the fiddler was ill / the well had run dry
something strange had been found in the snow

clothes
good boots / green coat / grey cloak / Sunday jacket / thick scarf

clothing
cap / hat / glove / scarf / stocking / cloak

food
bread and cheese / a bowl of soup / two boiled eggs / a piece of honey cake / hot chestnuts
smoked fish / potatoes and salt / an apple / pancakes / plum dumplings / onion pie

weather
a thin rain / a warm wind / white fog / a fine mist / heavy sunshine / a cold drizzle
a sudden gust of sand / a dry wind / soft grey light / hail as big as peas / a haze of dust
thunder without rain

quarter
the north / the south / the east / the west / the sea / the mountains / the plain

sight
the poplars stood in a row / women were hanging out the washing / the hay lay in long lines
crows walked about in the stubble / a mill turned without any hurry / boats lay upside down on the grass
nettles grew as high as a man / a heron stood in the shallow water
smoke rose from <smallnumber> chimneys / a field of barley moved like water
somebody had built a wall of round stones / the willows leaned over the ditch / puddles lay in every rut
foxes had dug under the fence / mushrooms stood in a ring / the mountains looked close enough to touch
the telegraph wires hummed / men were cutting reeds

sound
a dog was barking / somebody played the accordion / an owl called / bells were ringing
a train whistled / the wind rattled the shutters / frogs were croaking
a woman sang the same line again and again / the rain drummed on a tin roof / a baby was crying
wood was being chopped / the geese made a great noise

along
along the canal / between high hedges / through the beech wood / beside the railway / over the moor
past the brickworks / along the ridge / between the ponds / through the vineyards
under old chestnut trees

stranger
tall woman / boy with a broken shoe / retired captain / pedlar / travelling tinker
girl with a goose under her arm / tired doctor / man who stammered / monk / student of botany
soldier on leave / surveyor / widow in black / rat catcher / photographer / hunter without a gun

stranger2
a very old woman / an old woman in a straw hat / an old woman with a pipe

subject
the price of wool / the great flood / the king's illness / bees / a lost brother
the winter of the wolves / eclipses / ghosts / how to salt fish / the sea / a new railway / the stars
bad marriages / a horse that could count / the right way to plant beans

shelter
a hay barn / the back room of an inn / a shepherd's hut / an empty chapel / a boat shed
the loft above a stable / the waiting room of a station

blanket
horse blanket / red blanket / patched quilt / borrowed coat / piece of sailcloth / grey shawl

seat
a milestone / a fallen trunk / a bench / the steps of a chapel / an upturned boat / a low wall
a heap of stones

saying
he who asks the way walks twice / rain before seven ends by eleven / a borrowed horse is always hungry
the last sack is the heaviest / good bread needs no song / a closed door keeps its own counsel
whoever plants walnuts loves his grandchildren / two fires are worth one lamp
a quiet river drowns more men than a wild one / one should never count the steps of a mountain

game
marbles / chess / knucklebones / hide and seek / cards / ninepins

cargo
barrels of herring / cabbages / roof tiles / oak planks / church candles / feathers / empty bottles
sugar beets / old doors / bricks / bales of hemp / umbrellas

smallnumber
four / six / seven / nine / ten / eleven

nth
second / third / fourth / fifth / sixth

daytime
in the early morning / toward noon / late in the afternoon / just before dark
in the middle of the night

ruin
the archive / the old granary / the chapel / the powder tower / the cellar / the library

fear
thunder / geese / umbrellas / the priest / church bells / its own shadow

namesake
a river / a song / a cousin nobody liked / a ship that never came back / an old general
)";

}  // namespace eddy
